# Beryl is built with GNU Make alone. `make help` lists the targets.
BUILD ?= build
CC ?= cc
OPT ?= -O2 -g
WARN = -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum
CPPFLAGS += -Iinclude -Isrc -I$(BUILD)/gen -Ithird_party
CFLAGS_ALL = -std=c11 $(OPT) $(WARN) $(WERROR) -fvisibility=hidden -fPIC -ffp-contract=off -MMD -MP $(CFLAGS)

LIB_SRC := $(sort $(wildcard src/*/*.c src/*/*/*.c))
CLI_SRC := $(sort $(wildcard app/cli/*.c))
TEST_SRC := $(sort $(wildcard tests/*.c))
WGSL := $(sort $(wildcard src/kernels/wgsl/*.wgsl))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)
SUITES := $(patsubst tests/%_test.c,%,$(filter %_test.c,$(TEST_SRC)))
LIBS := -lm -ldl -lpthread

.PHONY: all test
all: $(BUILD)/beryl $(BUILD)/beryl-test

$(BUILD)/libberyl.a: $(LIB_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/beryl: $(CLI_OBJ) $(BUILD)/libberyl.a
	$(CC) $(LDFLAGS) -o $@ $^ -ledit $(LIBS)
$(BUILD)/beryl-test: $(TEST_OBJ) $(BUILD)/libberyl.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -c -o $@ $<
$(BUILD)/tests/main.o: $(BUILD)/gen/suites.h
$(BUILD)/gen/suites.h: $(TEST_SRC)
	@mkdir -p $(@D)
	printf 'SUITE(%s)\n' $(SUITES) > $@

test: $(BUILD)/beryl-test
	$(BUILD)/beryl-test

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d)
