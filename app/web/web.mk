# The browser package (app/web): the module by clang and lld, the rest by the package's own tools.
#
# The modules are this same Makefile with other BUILDs: the library's C for wasm32-wasi and app/web/module.c, linked as a
# reactor. Exports are what module.c and src/device/web name so; nothing else of the library is kept. The full module has
# besides what src/base/build.h says, the exports of app/web/module_*.c, and the calls of beryl_graph.h and beryl_nn.h as they are.

WEB_BUILD := $(BUILD)/web
WEB_FULL_BUILD := $(BUILD)/web-full
WEB_CC := $(firstword $(CCACHE)) clang --target=wasm32-wasi
WEB_MODULE := $(WEB_BUILD)/beryl.wasm
WEB_FULL_MODULE := $(WEB_FULL_BUILD)/beryl-full.wasm
# 256 KiB, below which 1 KiB lies that nothing uses: so Binaryen may take offsets into loads and stores (1 % of the module).
WEB_STACK := 263168
# Instructions that every browser with WebGPU has.
WEB_OPT := -Oz -flto -DNDEBUG -mbulk-memory -msign-ext -mnontrapping-fptoint
WEB_FULL_OPT := $(WEB_OPT) -DBERYL_MODULE_FULL

# Binaryen makes it smaller by a few percent, where it is there. Told a level (-O) at the link, clang would call it without the features.
WASM_OPT := $(shell command -v wasm-opt)
WASM_MAY := --low-memory-unused --enable-bulk-memory --enable-sign-ext --enable-nontrapping-float-to-int

# In the inner make: the objects, then the module.
# Nothing of libc.c may be taken for a call of itself.
$(BUILD)/app/web/libc.o: CFLAGS += -fno-lto -fno-builtin
# What every kernel of a page's plans goes through, many times: fast rather than small.
WEB_FAST := $(addprefix $(BUILD)/src/,base/memory.o ir/pass/cse.o)
$(if $(filter -Oz,$(OPT)),$(eval $(WEB_FAST): CFLAGS += -O2))
WEB_OBJ := $(WASM_OBJ) $(BUILD)/app/web/libc.o $(BUILD)/app/web/module.o
WEB_LINK = $(CC) $(filter-out -O%,$(OPT)) $(LDFLAGS) -mexec-model=reactor -Wl,--gc-sections,--strip-all,--stack-first,-z,stack-size=$(WEB_STACK) -o $@ $^
$(BUILD)/beryl.wasm: $(WEB_OBJ)
	$(call say,LD,$@)
	$(Q)$(WEB_LINK)
	$(if $(WASM_OPT),$(Q)$(WASM_OPT) -Oz --flatten --rereloop -Oz -Oz $(WASM_MAY) -o $@ $@)

# Fetched by those who ask for it, so one pass of Binaryen is enough: half a minute less for 2 %.
WEB_GRAPH_CALLS = $(sort $(shell grep -ohE 'beryl_graph_[a-z0-9_]+' include/beryl_graph.h include/beryl_nn.h))
$(BUILD)/beryl-full.wasm: $(WEB_OBJ) $(patsubst %.c,$(BUILD)/%.o,$(wildcard app/web/module_*.c))
	$(call say,LD,$@)
	$(Q)$(WEB_LINK) $(WEB_GRAPH_CALLS:%=-Wl,--export-if-defined=%)
	$(if $(WASM_OPT),$(Q)$(WASM_OPT) -Oz $(WASM_MAY) -o $@ $@)

# bench/texts_bench.c as a module, for `npm run bench:texts`.
TEXTS_OBJ := $(patsubst %.c,$(BUILD)/%.o,bench/texts_bench.c tests/shape_make.c tests/gguf_make.c app/web/libc.c)
$(BUILD)/texts_bench.wasm: $(WASM_OBJ) $(TEXTS_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(filter-out -O%,$(OPT)) $(LDFLAGS) -mexec-model=reactor -Wl,--gc-sections,--stack-first,-z,stack-size=$(WEB_STACK) -o $@ $^

-include $(patsubst app/web/%.c,$(BUILD)/app/web/%.d,$(wildcard app/web/*.c))

WEB_PORT ?= 8080

# Node is the machine's, or the one that tools/setup fetched where that is too old.
export PATH := $(CURDIR)/third_party/node/bin:$(PATH)
WEB_PACKAGES := app/web/node_modules/.package-lock.json

web-packages: $(WEB_PACKAGES)
	@:
$(WEB_PACKAGES): app/web/package-lock.json
	$(call say,NPM,$<)
	$(Q)cd app/web && npm ci --silent && touch node_modules/.package-lock.json

## web        the browser package, in app/web/dist, and the page, in app/web/dist-page
web:
	@tools/setup web
	@$(MAKE) --no-print-directory web-module web-packages
	@cd app/web && npm run --silent build && npm run --silent page

## web-serve  the page at http://localhost:$(WEB_PORT), with the built-in model
web-serve: web
	@cd app/web && npm run --silent serve -- --port $(WEB_PORT) $(if $(DISPLAY)$(WAYLAND_DISPLAY),--open)

## web-test   the browser package's tests alone: under Node, under Deno, and of the page in a headless Chromium
web-test:
	@tools/setup test
	@mkdir -p $(BUILD)/home
	@$(TEST_ENV) MAKE='$(MAKE_COMMAND)' BUILD='$(BUILD)' tests/web.sh

web-texts-bench:
	@$(MAKE) $(PARALLEL) BUILD=$(WEB_BUILD) CC='$(WEB_CC)' PIC= OPT='$(WEB_OPT)' LDFLAGS='-Wl,--lto-O2' $(WEB_BUILD)/texts_bench.wasm

# -Oz, since the module is fetched before anything else happens; what is hot runs on the GPU.
web-module:
	@$(MAKE) $(PARALLEL) BUILD=$(WEB_BUILD) CC='$(WEB_CC)' PIC= OPT='$(WEB_OPT)' LDFLAGS='-Wl,--lto-O2' $(WEB_MODULE)
	@$(MAKE) $(PARALLEL) BUILD=$(WEB_FULL_BUILD) CC='$(WEB_CC)' PIC= OPT='$(WEB_FULL_OPT)' LDFLAGS='-Wl,--lto-O2' $(WEB_FULL_MODULE)
	@mkdir -p app/web/dist; for module in $(WEB_MODULE) $(WEB_FULL_MODULE); do \
	    cmp -s $$module app/web/dist/$${module##*/} || cp $$module app/web/dist/; done
