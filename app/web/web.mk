# The browser package (app/web): the module by clang and lld, the rest by the package's own tools.
#
# The module is this same Makefile with another BUILD: the library's C for wasm32-wasi and app/web/module.c, linked as a
# reactor. Its exports are what module.c and src/device/web name so; nothing else of the library is kept.

WEB_BUILD := $(BUILD)/web
WEB_CC := $(firstword $(CCACHE)) clang --target=wasm32-wasi
WEB_MODULE := $(BUILD)/web/beryl.wasm
WEB_STACK := 262144
# Instructions that every browser with WebGPU has.
WEB_OPT := -Oz -flto -DNDEBUG -mbulk-memory -msign-ext -mnontrapping-fptoint

# In the inner make: the objects, then the module.
# Nothing of libc.c may be taken for a call of itself.
$(BUILD)/app/web/libc.o: CFLAGS += -fno-lto -fno-builtin
WEB_OBJ := $(WASM_OBJ) $(patsubst %.c,$(BUILD)/%.o,$(wildcard app/web/*.c))
$(BUILD)/beryl.wasm: $(WEB_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(OPT) $(LDFLAGS) -mexec-model=reactor -Wl,--gc-sections,--strip-all,--stack-first,-z,stack-size=$(WEB_STACK) -o $@ $^

-include $(patsubst app/web/%.c,$(BUILD)/app/web/%.d,$(wildcard app/web/*.c))

WEB_PORT ?= 8080

## web        the browser package, in app/web/dist, and the page, in app/web/dist-page
web: web-module
	@cd app/web && { [ -d node_modules ] || npm ci --silent; } && npm run --silent build && npm run --silent page

## web-serve  the page at http://localhost:$(WEB_PORT), with the built-in model
web-serve: web
	@cd app/web && npm run --silent serve -- --port $(WEB_PORT) $(if $(DISPLAY)$(WAYLAND_DISPLAY),--open)

## web-test   tests of the package, then of the page in a headless Chromium where one is installed
web-test: web
	@cd app/web && npm run --silent check && npm test --silent && npm run --silent test:browser

# -Oz, since the module is fetched before anything else happens; what is hot runs on the GPU.
web-module:
	@$(MAKE) $(PARALLEL) BUILD=$(WEB_BUILD) CC='$(WEB_CC)' PIC= OPT='$(WEB_OPT)' LDFLAGS='-Wl,--lto-O2' EMBED_FLAGS=--small $(WEB_MODULE)
	@mkdir -p app/web/dist && cmp -s $(WEB_MODULE) app/web/dist/beryl.wasm || cp $(WEB_MODULE) app/web/dist/beryl.wasm
