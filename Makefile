# Beryl is built with GNU Make alone. `make help` lists the targets and what can be set.
#
# The build folder has the shape of the installed tree (bin, lib, share), so a program finds its things the same
# way in both. Checks, sanitizers and fuzzers are this same Makefile with another BUILD and other flags.

BUILD ?= build
CC = cc
OPT ?= -O2 -g
PIC ?= -fPIC
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 20
FUZZ_OPT ?= -O0
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
VERSION := $(shell sed -n 's/^\#define BERYL_VERSION "\(.*\)"/\1/p' include/beryl.h)
comma := ,
MAJOR := $(firstword $(subst ., ,$(VERSION)))
ifeq ($(shell uname -s),Darwin)
SHARED := libberyl.dylib
SONAME := libberyl.$(MAJOR).dylib
SHARED_FILE := libberyl.$(VERSION).dylib
SHARED_FLAGS = -dynamiclib -install_name $(LIBDIR)/$(SONAME)
HIDE := :
WGPU := libwgpu_native.dylib
else
SHARED := libberyl.so
SONAME := libberyl.so.$(MAJOR)
SHARED_FILE := libberyl.so.$(VERSION)
SHARED_FLAGS = -shared -Wl,-soname,$(SONAME) -Wl,-z,defs
HIDE := objcopy --localize-hidden
WGPU := libwgpu_native.so
endif

WARN = -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum
CPPFLAGS += -Iinclude -Isrc -I$(BUILD)/gen
CFLAGS_ALL = -std=c11 $(OPT) $(WARN) $(WERROR) -fvisibility=hidden $(PIC) -ffp-contract=off -MMD -MP $(CFLAGS)
LIBS = -lm -ldl -lpthread $(DECODER_LIBS)

# V=1 shows the commands.
Q = $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-8s %s\n' $(1) $(2))

# Backends that open a driver are native alone, and so are decoders and the tests' own; the browser's is for wasm alone.
NATIVE := $(addprefix src/device/,dummy/% webgpu/% driver/% cuda/% hip/% opencl/% host/% disk/%) src/media/decode/%
ALL_SRC := $(sort $(wildcard src/*/*.c src/*/*/*.c))
# Decoders of pictures and sound, each where its library is: kind, name, header, library, Debian package. (A page has the browser's.)
DECODERS_KNOWN := PICTURE:png:png.h:png:libpng-dev PICTURE:jpeg:jpeglib.h:jpeg:libjpeg62-turbo-dev PICTURE:webp:webp/decode.h:webp:libwebp-dev \
    PICTURE:gif:gif_lib.h:gif:libgif-dev SOUND:sndfile:sndfile.h:sndfile:libsndfile1-dev
part = $(word $(1),$(subst :, ,$(2)))
DECODERS := $(if $(findstring --target=wasm,$(CC)),,$(foreach d,$(DECODERS_KNOWN),$(if $(shell $(CC) -include stdio.h -include $(call part,3,$(d)) -E -x c /dev/null > /dev/null 2>&1 && echo there),$(d))))
DECODER_LIBS := $(foreach d,$(DECODERS),-l$(call part,4,$(d)))
DECODER_LIST := $(if $(findstring --target=wasm,$(CC)),,PICTURE_DECODER(bmp)) $(foreach d,$(DECODERS),$(call part,1,$(d))_DECODER($(call part,2,$(d))))
NO_DECODER = $(filter-out $(DECODERS),$(DECODERS_KNOWN))
LIB_SRC := $(filter-out src/device/web/% $(foreach d,$(NO_DECODER),src/media/decode/$(call part,2,$(d)).c),$(ALL_SRC))
WASM_SRC := $(filter-out $(NATIVE),$(ALL_SRC))
# The chat's lines are edited by libedit where it is installed, else by the terminal.
LIBEDIT := $(shell $(CC) -include histedit.h -E -x c /dev/null > /dev/null 2>&1 && echo -ledit)
CLI_SRC := $(filter-out app/cli/line_$(if $(LIBEDIT),plain,edit).c,$(sort $(wildcard app/cli/*.c)))
TEST_SRC := $(sort $(wildcard tests/*.c))
FUZZ_SRC := $(sort $(wildcard fuzz/*_fuzz.c))
BENCH_SRC := $(sort $(wildcard bench/*.c))
PUBLIC := $(wildcard include/beryl*.h)

LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
WASM_OBJ := $(WASM_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)
FUZZ_NAMES := $(FUZZ_SRC:fuzz/%_fuzz.c=%)
# The longest first: processes take them in this order (tests/main.c).
LONG_SUITES := ops fixtures answers products graph_fuzz codegen fixtures_elsewhere selftest faults drivers pointwise views train contract media towers tune index fused session fft recurrent reduce sort small_models shapes signal bench_ops linear experts explain

INTERNAL := $(BUILD)/obj/libberyl.a
PROGRAM := $(BUILD)/bin/beryl
TESTER := $(BUILD)/bin/beryl-test
TREE := $(BUILD)/lib/beryl/$(WGPU) $(BUILD)/share/beryl/models/default.gguf

.PHONY: all run test test-all check docs bench fuzz sanitize sanitize-kernels tsan coverage install uninstall clean help
.PHONY: replay fuzzers random-graphs $(FUZZ_NAMES:%=fuzz-%) check-build check-wasm check-style check-docs check-wgsl FORCE
.PHONY: web web-module web-packages web-test web-serve
.DELETE_ON_ERROR:

## all        the program and both forms of the library, in $(BUILD)/bin and $(BUILD)/lib
all: $(PROGRAM) $(BUILD)/lib/libberyl.a $(BUILD)/lib/$(SHARED) $(TREE)

help:
	@sed -n 's/^## /  make /p' Makefile app/web/web.mk
	@echo 'What can be set (shown: as it is now):'
	@echo '  BUILD=$(BUILD) CC=$(CC) OPT="$(OPT)" JOBS=$(JOBS) V=$(V) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo '  FUZZ_SECONDS=$(FUZZ_SECONDS) ARGS="" (make run)  TESTS="" (prefixes of cases)  BENCH="" (make bench)'

# ---- the library, the program, the tests -------------------------------------------------------------

# Everything, internal symbols too: for the program, tests and fuzzers.
$(INTERNAL): $(LIB_OBJ)
	$(call say,AR,$@)
	@mkdir -p $(@D) && rm -f $@
	$(Q)$(AR) rcs $@ $^

# What is installed. Internal symbols are hidden in the static form too: one object, then made local
# (Apple's ld -r does that by itself).
$(BUILD)/lib/libberyl.a: $(LIB_OBJ)
	$(call say,AR,$@)
	@mkdir -p $(@D) $(BUILD)/obj && rm -f $@
	$(Q)$(LD) -r -o $(BUILD)/obj/beryl.o $^
	$(Q)$(HIDE) $(BUILD)/obj/beryl.o
	$(Q)$(AR) rcs $@ $(BUILD)/obj/beryl.o

$(BUILD)/lib/$(SHARED): $(LIB_OBJ)
	$(call say,LD,$(BUILD)/lib/$(SHARED_FILE))
	@mkdir -p $(@D)
	$(Q)$(CC) $(SHARED_FLAGS) $(LDFLAGS) -o $(@D)/$(SHARED_FILE) $^ $(LIBS)
	$(Q)ln -sf $(SHARED_FILE) $(@D)/$(SONAME) && ln -sf $(SONAME) $@

$(PROGRAM): $(CLI_OBJ) $(INTERNAL) | $(TREE)
	$(call say,LD,$@)
	@mkdir -p $(@D)$(if $(LIBEDIT),,; echo 'without libedit, so without line editing in the chat (Debian: libedit-dev)')$(foreach d,$(NO_DECODER),; echo 'without $(call part,2,$(d)) files (Debian: $(call part,5,$(d)))')
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBEDIT) $(LIBS)

# With the program's handler of Ctrl-C, which is tested alone.
$(TESTER): $(TEST_OBJ) $(BUILD)/app/cli/signals.o $(INTERNAL) | $(TREE)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(TEST_LDFLAGS) -o $@ $^ $(LIBS)
# Every WGSL and OpenCL text goes through tests/device_texts.c on its way to the device; the system's calls fail on demand (tests/faults.c).
TEST_WRAPPED := device_program_make $(shell sed -n 's/^CALL[A-Z_]*.\([a-z0-9_]*\)[^a-z0-9_].*/\1/p' tests/faults.c)
TEST_LDFLAGS := $(if $(filter Linux,$(shell uname -s)),$(TEST_WRAPPED:%=-Wl$(comma)--wrap=%))

# The real vocabulary, for the tests that want it; they skip where xz is missing.
$(TESTER): | $(BUILD)/vocab.gguf
$(BUILD)/tests/%.o: CPPFLAGS += -DBERYL_TEST_VOCAB='"$(abspath $(BUILD))/vocab.gguf"'
$(BUILD)/vocab.gguf: tests/data/vocab/gemma4-vocab.gguf.xz
	$(call say,XZ,$@)
	@mkdir -p $(@D)
	$(Q)if command -v xz > /dev/null; then xz -dc $< > $@; else echo 'xz is missing: tests of the real vocabulary are skipped'; fi

# A driver for CUDA and HIP where there is none (tests/stand_in/driver.c).
STAND_IN := $(if $(filter Linux,$(shell uname -s)),$(BUILD)/tests/stand_in.so)
$(BUILD)/tests/%.o: CPPFLAGS += -DBERYL_TEST_STAND_IN='"$(abspath $(BUILD))/tests/stand_in.so"'
$(BUILD)/tests/stand_in.so: $(filter-out %/opencl.c,$(wildcard tests/stand_in/*.[ch]))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O1 -g $(WARN) -Wno-missing-prototypes $(WERROR) -fPIC -fvisibility=hidden -shared \
	    -DSTAND_IN_PRELUDE='"$(abspath tests/stand_in/prelude.h)"' -o $@ $(filter %.c,$^) -lpthread -ldl

# The system's OpenCL, which fails on demand, with subgroups where its driver has none (tests/stand_in/opencl.c).
OPENCL_LOADER := $(firstword $(wildcard /usr/lib/libOpenCL.so.1 /usr/lib64/libOpenCL.so.1 /usr/lib/*-linux-gnu/libOpenCL.so.1))
STAND_IN += $(if $(OPENCL_LOADER),$(BUILD)/tests/stand_in_opencl.so)
$(BUILD)/tests/%.o: CPPFLAGS += -DBERYL_TEST_STAND_IN_OPENCL='"$(abspath $(BUILD))/tests/stand_in_opencl.so"'
$(BUILD)/tests/stand_in_opencl.so: tests/stand_in/opencl.c tests/stand_in/calls.c tests/stand_in/calls.h src/device/opencl/opencl.h
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O1 -g $(WARN) -Wno-missing-prototypes $(WERROR) -fPIC -fvisibility=hidden -shared -Iinclude -Isrc -o $@ $(filter %.c,$^) \
	    -Wl,--no-as-needed $(OPENCL_LOADER) -lpthread -ldl
$(TESTER): | $(STAND_IN)

# Short names for those who build one of them.
$(BUILD)/beryl: $(PROGRAM)
	@ln -sf bin/beryl $@
$(BUILD)/beryl-test: $(TESTER)
	@ln -sf bin/beryl-test $@

$(BUILD)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -c -o $@ $<
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -c -o $@ $<

# Suites and fuzz targets are called by their names alone; no header declares them.
$(TEST_OBJ) $(FUZZ_SRC:%.c=$(BUILD)/%.o): CFLAGS += -Wno-missing-prototypes
# One level below what they test, in half of the time: their own code runs for less than it is compiled.
$(TEST_OBJ): CFLAGS += $(if $(filter -O2,$(OPT)),-O1)$(if $(filter -O1 -Og,$(OPT)),-O0)
$(BUILD)/tests/main.o: $(BUILD)/gen/suites.h
$(BUILD)/gen/suites.h: $(TEST_SRC) tests
	@mkdir -p $(@D)
	$(Q){ printf '%s\n' $(LONG_SUITES); sed -n 's/^void test_\([a-z0-9_]*\)(test \*t) {$$/\1/p' $(filter %_test.c,$(TEST_SRC)); } | \
	    awk '!seen[$$0]++ { print "SUITE(" $$0 ")" }' > $@

# Twice as fast: what photographs of 12 megapixels are resized by; spectra of sound.
$(if $(filter -O2,$(OPT)),$(eval $(BUILD)/src/media/resize.o $(BUILD)/src/gemma4/mel.o: CFLAGS += -O3))

# What each build has: asked again at every make, written when it changed.
$(BUILD)/src/media/file.o $(patsubst src/media/decode/%.c,$(BUILD)/src/media/decode/%.o,$(wildcard src/media/decode/*.c)): $(BUILD)/gen/decoders.h
$(BUILD)/src/engine/media.o $(BUILD)/tests/decode_test.o $(BUILD)/tests/sound_test.o $(BUILD)/fuzz/picture_fuzz.o $(BUILD)/fuzz/sound_fuzz.o: $(BUILD)/gen/decoders.h
$(BUILD)/gen/decoders.h: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(DECODER_LIST)' | tr ' ' '\n' | cmp -s - $@ || printf '%s\n' '$(DECODER_LIST)' | tr ' ' '\n' > $@

# Sources that ask where Beryl will be installed are compiled again when that changes.
PLACED := $(patsubst %.c,$(BUILD)/%.o,$(shell grep -lE 'BERYL_(PREFIX|LIBDIR|DATADIR)' $(LIB_SRC) $(CLI_SRC) /dev/null))
$(PLACED): $(BUILD)/gen/places
$(PLACED): CPPFLAGS += -DBERYL_PREFIX='"$(PREFIX)"' -DBERYL_LIBDIR='"$(LIBDIR)/beryl"' -DBERYL_DATADIR='"$(DATADIR)/beryl"'
$(BUILD)/gen/places: FORCE
	@mkdir -p $(@D)
	@echo '$(PREFIX) $(LIBDIR) $(DATADIR)' | cmp -s - $@ || echo '$(PREFIX) $(LIBDIR) $(DATADIR)' > $@

# wgpu-native is opened at run time, if it is there: tools/setup fetches it, nothing else asks the network.
$(BUILD)/lib/beryl/$(WGPU):
	@mkdir -p $(@D); if [ -e third_party/wgpu/$(WGPU) ]; then ln -sf $(CURDIR)/third_party/wgpu/$(WGPU) $@; \
	    else echo 'without wgpu-native, so without WebGPU (to fetch it: tools/setup wgpu)'; fi
$(BUILD)/share/beryl/models/default.gguf:
	@mkdir -p $(@D) && ln -sf $(CURDIR)/models/default.gguf $@

-include $(sort $(LIB_OBJ:.o=.d) $(WASM_OBJ:.o=.d)) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(wildcard $(BUILD)/fuzz/*.d $(BUILD)/bench/*.d)

# ---- what people type --------------------------------------------------------------------------------

PARALLEL = --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

## run        set up this machine, build, and chat with the built-in model (ARGS="MODEL PROMPT ...")
run:
	@tools/setup run
	@$(MAKE) $(PARALLEL) $(PROGRAM)
	@$(PROGRAM) run $(ARGS)

# Tests run on software Vulkan, see no settings of the user, and leave nothing in the user's folders.
# The C suites in two processes, where there are as many processors: much of a case is done by one thread.
TEST_JOBS ?= $(shell [ "$$(getconf _NPROCESSORS_ONLN)" -gt 1 ] && echo 2 || echo 1)
TEST_SPLIT = BERYL_TEST_JOBS=$(TEST_JOBS) LP_NUM_THREADS=1
LAVAPIPE := $(firstword $(wildcard /usr/share/vulkan/icd.d/lvp_icd*.json))
# nopt: lavapipe compiles a shader in two thirds of the time, without LLVM's optimisation, which tests gain nothing from.
TEST_ENV = env -u BERYL_DEVICE -u OLLAMA_MODELS -u XDG_DATA_HOME -u XDG_CACHE_HOME -u XDG_STATE_HOME -u XDG_CONFIG_HOME \
    HOME=$(abspath $(BUILD))/home XDG_RUNTIME_DIR=$(abspath $(BUILD))/home BERYL_PROGRAM=$(abspath $(PROGRAM)) \
    $(if $(LAVAPIPE),VK_ICD_FILENAMES=$(LAVAPIPE) VK_DRIVER_FILES=$(LAVAPIPE) GALLIVM_PERF=$(if $(BERYL_TEST_ALL),,nopt))

## test-all   the same with the forms that make test only draws from
test-all:
	@BERYL_TEST_ALL=1 $(MAKE) test

## test       set up this machine, build, and run every test (TESTS="gguf/ graph/" runs some)
test:
	@tools/setup test
	@$(MAKE) $(PARALLEL) all $(TESTER)
	@$(if $(TESTS),,rm -rf $(BUILD)/wgsl;) mkdir -p $(BUILD)/home $(BUILD)/wgsl
ifeq ($(TESTS),)
	@$(MAKE) $(PARALLEL) replay
	@$(TEST_ENV) BERYL_TEST_WGSL=$(BUILD)/wgsl MAKE='$(MAKE_COMMAND)' BUILD='$(BUILD)' CC='$(CC)' PREFIX='$(PREFIX)' \
	    tests/all.sh tests/install.sh 'tests/cli.sh $(PROGRAM)' 'python3 tests/senses.py count $(PROGRAM) $(if $(BERYL_TEST_ALL),60,4) --device host' 'tests/train.sh $(PROGRAM)' '$(TEST_SPLIT) $(TESTER)' -- tests/web.sh 'tests/signals.sh $(PROGRAM)'
else
	@$(TEST_ENV) BERYL_TEST_WGSL=$(BUILD)/wgsl $(TESTER) $(TESTS)
endif

## bench      how fast the default model runs here (BENCH="-p 512 -n 128"), then the programs of bench/
bench: $(PROGRAM) $(BENCH_SRC:bench/%.c=$(BUILD)/bench/%)
	$(PROGRAM) bench $(BENCH)
	@set -e; for program in $(BENCH_SRC:bench/%.c=$(BUILD)/bench/%); do echo; $$program; done
$(BENCH_SRC:%.c=$(BUILD)/%): %: %.o $(INTERNAL)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/bench/texts_bench: $(BUILD)/tests/shape_make.o $(BUILD)/tests/gguf_make.o

# gcc finds some only where it optimises; clang's do not depend on it, nor on sanitizers: it compiles the library for the fuzzers.
## check      warnings are errors with gcc and clang; wasm; who includes whom; sizes; words; scripts; documents
# With WERROR=-Werror: gcc and wasm build in $(BUILD) itself, where make test WERROR=-Werror has built most.
check: check-style
	@$(MAKE) $(PARALLEL) check-build BUILD=$(BUILD)$(if $(WERROR),,/gcc) CC='$(firstword $(CCACHE)) gcc' OPT=-O2
	@$(MAKE) $(PARALLEL) check-library BUILD=$(FUZZ_BUILD) CC='$(FUZZ_CC)' OPT='$(FUZZ_FLAGS)'
	@$(MAKE) $(PARALLEL) check-others BUILD=$(BUILD)/clang CC='$(FUZZ_CC)' OPT=-O0
	@$(MAKE) $(PARALLEL) check-wasm BUILD=$(if $(WERROR),$(WEB_FULL_BUILD),$(BUILD)/wasm) CC='$(WEB_CC)' PIC= OPT='$(WEB_FULL_OPT)'
	@$(MAKE) $(PARALLEL) check-docs
	@$(MAKE) check-wgsl
	@echo 'check: good'
CCACHE := $(shell command -v ccache)

check-style:
	tools/check-style
	tools/check-includes
	tools/check-wgpu

# The kernels that `make test` compiled, as Chrome's compiler sees them.
check-wgsl:
	@if command -v node > /dev/null; then node tools/tint-check.mjs $(BUILD)/wgsl; else echo 'skip tint-check (node is not there)'; fi

# Generated pages are current, links lead somewhere, examples in pages and headers compile.
check-docs: $(PROGRAM)
	tools/docs --check $(PROGRAM)

## docs       writes the pages that the program's tables know: docs/commands.md, docs/operations.md, docs/ir-ops.md, docs/types.md, what docs/walk.md shows
docs: $(PROGRAM)
	@tools/docs $(PROGRAM)

check-build check-library check-others: WERROR = -Werror
check-build: check-library check-others
check-library: $(LIB_OBJ) $(patsubst %.c,$(BUILD)/%.o,$(wildcard fuzz/*.c))
check-others: $(CLI_OBJ) $(patsubst %.c,$(BUILD)/%.o,$(wildcard app/cli/line_*.c)) $(TEST_OBJ) $(STAND_IN) $(BENCH_SRC:%.c=$(BUILD)/%.o) \
    $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/*.c)) $(PUBLIC:%.h=$(BUILD)/%.h.ok)

# Each public header alone, as C and as C++.
$(BUILD)/%.h.ok: %.h
	@mkdir -p $(@D)
	$(Q)clang -std=c11 $(WARN) -Werror -Iinclude -fsyntax-only -x c $<
	$(Q)clang -std=c++11 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ $<
	@touch $@

# The library's C for the browser, and what the module exports of it.
check-wasm: WERROR = -Werror
check-wasm: $(WASM_OBJ) $(patsubst %.c,$(BUILD)/%.o,$(wildcard app/web/*.c))

include app/web/web.mk

# ---- the hostile -------------------------------------------------------------------------------------

# -g1: what backtraces want, which gcc writes in two thirds of the time; -Og: two thirds of -O1's time, and cases run for a twentieth longer.
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SANITIZE_ENV = ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
    LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1

## sanitize   the tests under AddressSanitizer and UBSan (TESTS="gguf/ text/" runs some)
sanitize:
	@tools/setup test
	@$(MAKE) $(PARALLEL) BUILD=$(BUILD)/sanitize OPT='-Og -g1 $(SANITIZE)' LDFLAGS='$(SANITIZE)' \
	    $(BUILD)/sanitize/bin/beryl $(BUILD)/sanitize/bin/beryl-test
	@mkdir -p $(BUILD)/home
	@$(TEST_ENV) BERYL_PROGRAM=$(abspath $(BUILD))/sanitize/bin/beryl $(SANITIZE_ENV) $(TEST_SPLIT) $(BUILD)/sanitize/bin/beryl-test $(TESTS)

# On one thread, so that all but what a dispatch binds can be poisoned while it runs (src/device/host/bounds.h).
# Of these all (BERYL_TEST_ALL), of which `make test` draws. (Of attention's steps, the largest kernels, one of each kind; not its case of
# many tiles, which alone takes as long as a third of the others.)
CHECKED_TESTS = bounds/ 'ops/host/[!as]*' 'ops/host/a[!t]*' 'ops/host/attention/[!f]*' 'ops/host/attention/f*/[!m]*' 'ops/host/s[aceo]*' 'ops/host/step/[qwpv]*' ops/host/step/far-q8 ops/host/step/shared-f16 \
    fused/host/ experts/host products/host/one products/host/pieces products/host/odd products/host/few-Q4_K \
    products/host/many-Q4_K fixtures/whole-host-e2b-q4_0

## sanitize-kernels  kernels in C, compiled with address and bounds checks (TESTS="ops/host/" runs some)
sanitize-kernels:
	@tools/setup test
	@$(MAKE) $(PARALLEL) BUILD=$(BUILD)/sanitize OPT='-Og -g1 $(SANITIZE)' LDFLAGS='$(SANITIZE)' $(BUILD)/sanitize/bin/beryl-test
	@mkdir -p $(BUILD)/home
	@$(TEST_ENV) PATH="$(CURDIR)/tests/checked:$$PATH" BERYL_TEST_CC="$$(command -v $(lastword $(CC)))" BERYL_THREADS=1 BERYL_TEST_ALL=1 $(SANITIZE_ENV) \
	    $(TEST_SPLIT) $(BUILD)/sanitize/bin/beryl-test $(or $(TESTS),$(CHECKED_TESTS))

# Without the address space's randomness, of which gcc's and clang's runtimes bear less than some systems have. Software Vulkan
# is left out: its threads are not instrumented, and what they share looks like races.
TSAN = -fsanitize=thread -fno-omit-frame-pointer
TSAN_TESTS = threads/ host/ disk/ store/ device/dummy device/ids cuda/stand-in-slow cuda/stand-in-programs
TSAN_ENV = TSAN_OPTIONS=second_deadlock_stack=1:suppressions=$(CURDIR)/tools/tsan.supp:print_suppressions=0 $(shell setarch -R true 2> /dev/null && echo setarch -R)

## tsan       the tests of what runs in threads under ThreadSanitizer (TESTS="threads/" runs some)
tsan:
	@tools/setup test
	@$(MAKE) $(PARALLEL) BUILD=$(BUILD)/tsan CC='$(firstword $(CCACHE)) gcc' OPT='-O0 -g1 $(TSAN)' LDFLAGS='$(TSAN)' \
	    $(BUILD)/tsan/bin/beryl-test
	@mkdir -p $(BUILD)/home
	@$(TEST_ENV) $(TSAN_ENV) env $(TEST_SPLIT) $(BUILD)/tsan/bin/beryl-test $(or $(TESTS),$(TSAN_TESTS))

# Every input of fuzz/corpus once, without a fuzzer.
$(BUILD)/fuzz/ir $(BUILD)/fuzz/ir-replay: $(BUILD)/tests/ir_draw.o
$(BUILD)/fuzz/session $(BUILD)/fuzz/session-replay: $(BUILD)/tests/model_make.o $(BUILD)/tests/gguf_make.o
$(BUILD)/fuzz/engine $(BUILD)/fuzz/gguf: $(BUILD)/fuzz/gguf_mutate.o
replay: $(FUZZ_NAMES:%=$(BUILD)/fuzz/%-replay)
	@set -e; for name in $(FUZZ_NAMES); do $(BUILD)/fuzz/$$name-replay fuzz/corpus/$$name; done
$(FUZZ_NAMES:%=$(BUILD)/fuzz/%-replay): %-replay: %_fuzz.o $(BUILD)/fuzz/replay.o $(INTERNAL)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

FUZZ_BUILD = $(BUILD)/fuzzers$(FUZZ_OPT)
FUZZ_CC = $(firstword $(CCACHE)) clang
FUZZ_FLAGS = $(FUZZ_OPT) -g1 -fsanitize=fuzzer-no-link $(SANITIZE)

## fuzz       each fuzz target for FUZZ_SECONDS, from fuzz/corpus, under AddressSanitizer and UBSan, beside random graphs on every device (FUZZ_SEED: not the clock's; FUZZ_OPT=-O1: three times as long to build, for long searches)
fuzz:
	@tools/setup test
	@$(MAKE) $(PARALLEL) fuzzers BUILD=$(FUZZ_BUILD) CC='$(FUZZ_CC)' OPT='$(FUZZ_FLAGS)' LDFLAGS='$(SANITIZE)'
	@$(MAKE) $(PARALLEL) $(TESTER)
	@$(MAKE) $(PARALLEL) random-graphs $(FUZZ_NAMES:%=fuzz-%)
	@echo 'fuzz: $(words $(FUZZ_NAMES)) targets, $(FUZZ_SECONDS) s each, no finding'
random-graphs:
	@mkdir -p $(BUILD)/home
	@$(TEST_ENV) $(if $(FUZZ_SEED),BERYL_TEST_SEED=$(FUZZ_SEED)) BERYL_TEST_ROUNDS=1000000 BERYL_TEST_SECONDS=$$(( ($(FUZZ_SECONDS) + 2) / 3 )) $(TESTER) graph_fuzz/random/
$(FUZZ_NAMES:%=fuzz-%): fuzz-%:
	@found=$(BUILD)/fuzzers/$*; mkdir -p $$found; \
	$(SANITIZE_ENV) $(FUZZ_BUILD)/fuzz/$* -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 $(if $(FUZZ_SEED),-seed=$(FUZZ_SEED)) \
	    -artifact_prefix=$$found- -print_final_stats=1 $$found fuzz/corpus/$* > $$found.log 2>&1 || \
	    { tail -n 60 $$found.log; echo "FAIL fuzz $*: see above; the input is $$found-*"; exit 1; }; \
	echo "fuzz $*: $$(sed -n 's/.*number_of_executed_units: //p' $$found.log) inputs"
fuzzers: $(FUZZ_NAMES:%=$(BUILD)/fuzz/%)
$(FUZZ_NAMES:%=$(BUILD)/fuzz/%): %: %_fuzz.o $(INTERNAL)
	$(Q)$(CC) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LIBS)

## coverage   which lines the tests reach, by file
coverage:
	@tools/setup test
	@$(MAKE) $(PARALLEL) BUILD=$(BUILD)/coverage CC=gcc OPT='-O0 -g --coverage' LDFLAGS=--coverage $(BUILD)/coverage/bin/beryl-test
	@find $(BUILD)/coverage -name '*.gcda' -delete; mkdir -p $(BUILD)/home
	@$(TEST_ENV) $(BUILD)/coverage/bin/beryl-test $(TESTS)
	@tools/coverage $(BUILD)/coverage

# ---- installation ------------------------------------------------------------------------------------

# What goes where, as MODE:SOURCE:TARGET, and links, as TARGET=CONTENT. install and uninstall both read these.
MADE := $(addprefix $(BUILD)/gen/,beryl.pc beryl-config.cmake beryl-config-version.cmake beryl.1 beryl.bash beryl.zsh beryl.fish)
LINKS := $(LIBDIR)/$(SONAME)=$(SHARED_FILE) $(LIBDIR)/$(SHARED)=$(SONAME)
FILES = \
    755:$(PROGRAM):$(BINDIR)/beryl \
    755:$(BUILD)/lib/$(SHARED_FILE):$(LIBDIR)/$(SHARED_FILE) \
    644:$(BUILD)/lib/libberyl.a:$(LIBDIR)/libberyl.a \
    $(foreach f,$(WGPU) LICENSE.wgpu-py,644:third_party/wgpu/$(f):$(LIBDIR)/beryl/$(f)) \
    644:THIRD_PARTY_NOTICES.md:$(LIBDIR)/beryl/THIRD_PARTY_NOTICES.md \
    644:LICENSE:$(LIBDIR)/beryl/LICENSE \
    $(foreach h,$(PUBLIC),644:$(h):$(INCLUDEDIR)/$(notdir $(h))) \
    644:$(BUILD)/gen/beryl.pc:$(LIBDIR)/pkgconfig/beryl.pc \
    644:$(BUILD)/gen/beryl-config.cmake:$(LIBDIR)/cmake/beryl/beryl-config.cmake \
    644:$(BUILD)/gen/beryl-config-version.cmake:$(LIBDIR)/cmake/beryl/beryl-config-version.cmake \
    644:docs/man/libberyl.3:$(DATADIR)/man/man3/libberyl.3 \
    644:$(BUILD)/gen/beryl.1:$(DATADIR)/man/man1/beryl.1 \
    644:$(BUILD)/gen/beryl.bash:$(DATADIR)/bash-completion/completions/beryl \
    644:$(BUILD)/gen/beryl.zsh:$(DATADIR)/zsh/site-functions/_beryl \
    644:$(BUILD)/gen/beryl.fish:$(DATADIR)/fish/vendor_completions.d/beryl.fish \
    644:models/default.gguf:$(DATADIR)/beryl/models/default.gguf
# How programs find the library: by the dynamic linker's cache, or by the folder that beryl.pc writes into them.
RPATH := $(if $(filter /usr/lib% /lib%,$(LIBDIR)),,-Wl$(comma)-rpath$(comma)$${libdir})
LINKER_TOLD = @if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then PATH=$$PATH:/sbin:/usr/sbin; ! command -v ldconfig > /dev/null || ldconfig; fi

$(filter %.pc %.cmake,$(MADE)): $(BUILD)/gen/%: tools/package/%.in $(BUILD)/gen/places $(BUILD)/gen/decoders.h include/beryl.h
	@mkdir -p $(@D)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
	    -e 's|@RPATH@|$(RPATH)|g' -e 's|@VERSION@|$(VERSION)|g' -e 's|@SONAME@|$(SONAME)|g' -e 's|@DECODERS@|$(DECODER_LIBS)|g' -e 's|@DECODER_LIST@|$(subst -l,;,$(subst $() ,,$(DECODER_LIBS)))|g' -e 's|@SHARED_FILE@|$(SHARED_FILE)|g' $< > $@

# The program writes its own manual and completions, from its tables of commands and flags.
$(BUILD)/gen/beryl.1: $(PROGRAM)
	$(Q)$(PROGRAM) help --man > $@
$(BUILD)/gen/beryl.bash $(BUILD)/gen/beryl.zsh $(BUILD)/gen/beryl.fish: $(PROGRAM)
	$(Q)$(PROGRAM) help --completion $(subst .,,$(suffix $@)) > $@

## install    into $(DESTDIR)$(PREFIX): program, libraries, headers, pkg-config, CMake, manual, completions, model
install: all $(MADE)
	@set -e; for line in $(if $(wildcard third_party/wgpu/$(WGPU)),$(FILES),$(filter-out 644:third_party/%,$(FILES))); do \
	    mode=$${line%%:*}; line=$${line#*:}; target='$(DESTDIR)'$${line#*:}; \
	    mkdir -p "$$(dirname "$$target")"; install -m $$mode "$${line%%:*}" "$$target"; done
	@set -e; for link in $(LINKS); do ln -sf "$${link#*=}" '$(DESTDIR)'"$${link%%=*}"; done
	$(LINKER_TOLD)
	@echo 'installed into $(DESTDIR)$(PREFIX)'

## uninstall  removes exactly what install put there
uninstall:
	@rm -f $(foreach f,$(FILES),'$(DESTDIR)$(call part,3,$(f))') $(foreach l,$(LINKS),'$(DESTDIR)$(firstword $(subst =, ,$(l)))')
	@for folder in $(DATADIR)/beryl/models $(DATADIR)/beryl $(LIBDIR)/beryl $(LIBDIR)/cmake/beryl; do \
	    rmdir '$(DESTDIR)'$$folder 2>/dev/null || true; done
	$(LINKER_TOLD)

## clean      removes $(BUILD)
clean:
	rm -rf $(BUILD)
