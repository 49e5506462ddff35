# Cellar: build and test; packaging/packaging.mk, which is included, installs and packs. GNU make 4.3 or newer; no
# configure, no recursion.
#
#   make                       the program and both libraries
#   make run                   install what is missing, build, tell a story
#   make test                  install what is missing, build and run every test
#   make help                  everything else
#
# Sources are found by their place and name, so a new file is simply added (CONTRIBUTING.md says where).
# Every configuration has a folder of its own, build/<hash of compiler and flags>/, so builds with other
# compilers and sanitizers live side by side. build/cellar, build/replay and the libraries in build/
# point to the latest default build. Honoured: CC CXX AR CPPFLAGS CFLAGS LDFLAGS LDLIBS DESTDIR PREFIX
# LIBDIR; what the code itself needs comes after them.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
.PHONY: FORCE

# ---- what can be set -------------------------------------------------------------------------------

BUILD ?= build
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
CFLAGS ?= -O2 -g
SANITIZE ?=
# Warnings are errors in a checkout, not in a released archive with a compiler nobody has seen yet.
WERROR ?= $(if $(wildcard .git),-Werror)
# Put before every test program: EXEC='valgrind -q --error-exitcode=99', EXEC='qemu-x86_64 -cpu Nehalem'.
EXEC ?=
# Only these test programs, without folder: make check ONLY="unit_runs replay".
ONLY ?=
# Seconds for each fuzz target.
TIME ?= 60
# What the program is linked with besides libc. `APP_LIBS=` builds the tests that need no more than that.
# SHARED=no builds a program without hiredis and OpenSSL, which refuses `cellar serve --shared`.
SHARED ?= yes
APP_LIBS ?= -Wl,--as-needed -ljansson -ledit -lmicrohttpd $(if $(filter yes,$(SHARED)),-lhiredis -lssl -lcrypto)
BUILTIN_MODEL ?= models/storyteller.gguf
PROMPT ?= Once upon a time
# Most tokens that `make run` writes; empty: until the model ends its story.
N ?=

# The fuzzer lives in clang: `make fuzz` chooses it.
ifneq ($(filter fuzz,$(MAKECMDGOALS)),)
override CC := $(if $(findstring clang,$(CC)),$(CC),clang)
override SANITIZE := address,undefined,fuzzer-no-link
endif
ifneq ($(findstring clang,$(CC)),)
ifeq ($(origin CXX),default)
CXX := $(subst clang,clang++,$(CC))
endif
endif

# ---- flags -----------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wshadow -Wcast-qual -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
# For the library and everything that reads bytes from outside.
STRICT := -Wconversion -Wno-sign-conversion
# Equal results on every compiler: a product and a sum are fused only where the code says so.
REQUIRED := -std=c11 -pthread -ffp-contract=off $(WARNINGS) $(WERROR) $(if $(filter no,$(SHARED)),-DCELLAR_NO_SHARED)
SANITIZERS := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)

IN_LIB := -Iinclude -Ilib -Ikernels -fPIC -fvisibility=hidden
IN_APP := -Iinclude -Iapp -Ikernels
IN_TESTS := -Iinclude -Iapp -Ikernels -Ilib -Itests -I.
FLAGS_avx2 := -mavx2 -mfma -mf16c
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni \
	-mpclmul -mvpclmulqdq -mprefer-vector-width=512
# NEON needs none: every AArch64 processor has it.
FLAGS_armcrc := -march=armv8-a+crc

compiler := $(shell $(CC) --version 2>/dev/null | head -n 1)
machine := $(shell $(CC) -dumpmachine 2>/dev/null)
configuration := $(CC) $(compiler) $(machine) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(REQUIRED) $(STRICT) \
	$(SANITIZERS) $(IN_LIB) $(IN_APP) $(IN_TESTS) $(FLAGS_avx512) $(FLAGS_armcrc)
quoted = '$(subst ','\'',$(1))'
OUT := $(BUILD)/$(shell printf '%s' $(call quoted,$(configuration)) | cksum | awk '{ printf "%08x", $$1 }')

# The default build: no sanitizer, the system's gcc, no flags on the command line.
is_default := $(if $(SANITIZE)$(filter-out cc gcc,$(notdir $(CC)))$(findstring command line,\
	$(origin CFLAGS)$(origin CPPFLAGS)$(origin LDFLAGS)),,yes)

VERSION := $(shell awk '/define CELLAR_VERSION_(MAJOR|MINOR|PATCH)/ { v = v s $$3; s = "." } END { print v }' include/cellar.h)
SOVERSION := 0

# ---- sources ---------------------------------------------------------------------------------------

objects = $(patsubst %.S,$(OUT)/%.o,$(patsubst %.c,$(OUT)/%.o,$(1)))

kernels := $(wildcard kernels/*.c)
ifeq ($(filter x86_64-% amd64-%,$(machine)),)
kernels := $(filter-out %_avx2.c %_avx512.c,$(kernels))
endif
ifeq ($(filter aarch64-% arm64-%,$(machine)),)
kernels := $(filter-out %_neon.c,$(kernels))
endif
app_kernels := $(filter kernels/matmul_% kernels/activate_% kernels/vector_% kernels/scan_%,$(kernels))
lib_sources := $(wildcard lib/*.c) $(filter-out $(app_kernels),$(kernels))
main_source := $(wildcard app/cli/main.c)
app_sources := $(filter-out $(main_source),$(wildcard app/*.c app/*/*.c)) $(app_kernels) \
	$(if $(wildcard $(BUILTIN_MODEL)),$(wildcard app/builtin_model.S)) app/serve/page.S
support_sources := $(wildcard tests/*_writer.c tests/support_*.c tests/model/*.c)
strict_sources := $(wildcard lib/*.c app/engine/gguf*.c app/tokenizer/*.c app/chat/*.c app/serve/*.c app/shared/*.c app/template/*.c tests/*trace*.c)

units := $(basename $(wildcard tests/unit_*.c))
mains := $(basename $(wildcard tests/attention_matrix.c tests/chat_terminal.c tests/crash.c tests/differential.c tests/scenarios.c tests/faults.c \
	tests/kernel_check.c tests/replay.c))
examples := $(basename $(wildcard examples/*.c examples/tour/*.c))
seeds := $(basename $(wildcard fuzz/seeds_*.c))
fuzzers := $(patsubst fuzz/fuzz_%.c,%,$(wildcard fuzz/fuzz_*.c))

libraries := $(OUT)/libcellar.a $(OUT)/libcellar.so
program := $(if $(main_source),$(OUT)/cellar)

# ---- programs: each is its own sources and, of the archives, what they use -------------------------

# $(call program,name,sources)
define program_rule
programs += $(OUT)/$(1)
sources += $(2)
$(OUT)/$(1): $(call objects,$(2))
endef
program_of = $(eval $(call program_rule,$(1),$(sort $(2))))

programs :=
sources := $(lib_sources) $(app_sources) $(support_sources)
$(if $(main_source),$(call program_of,cellar,$(main_source)))
$(foreach p,$(units) $(examples),$(call program_of,$(p),$(p).c))
$(foreach p,$(mains),$(call program_of,$(p),$(p).c $(wildcard $(p)_*.c)))
$(foreach p,$(seeds),$(call program_of,$(p),$(p).c))
$(foreach f,$(fuzzers),$(call program_of,fuzz/corpus_$(f),fuzz/fuzz_$(f).c fuzz/replay_corpus.c))
fuzz_programs := $(addprefix $(OUT)/fuzz/fuzz_,$(fuzzers))

all_objects := $(sort $(call objects,$(sources)))

$(OUT)/lib/%.o $(OUT)/kernels/%.o: PLACE = $(IN_LIB)
$(OUT)/app/%.o: PLACE = $(IN_APP)
$(OUT)/tests/%.o $(OUT)/fuzz/%.o: PLACE = $(IN_TESTS)
$(OUT)/examples/%.o: PLACE = -Iinclude
$(call objects,$(strict_sources)): EXTRA = $(STRICT)
%_avx2.o: EXTRA = $(FLAGS_avx2)
%_avx512.o: EXTRA = $(FLAGS_avx512)
%/crc32c_neon.o: EXTRA = $(FLAGS_armcrc)
# With sanitizers the unrolled kernels take a minute each at -O2, a quarter of that at -O1.
$(if $(SANITIZE),$(OUT)/kernels/%.o: SANITIZERS += -O1)
$(addprefix $(OUT)/,$(units)): TEST_LIBS = -lcmocka

ifeq ($(V),1)
say = @:
Q :=
else
say = @printf '  %-6s %s\n' $(1) $(2)
Q := @
endif

compile = $(CC) $(CPPFLAGS) $(CFLAGS) $(REQUIRED) $(PLACE) $(EXTRA) $(SANITIZERS) -MMD -MP -c -o $@ $<
link = $(CC) $(CFLAGS) -pthread $(SANITIZERS) $(LDFLAGS)

.PHONY: all check test run
all: $(libraries) $(program) $(if $(is_default),links)

# `make run` and `make test` install first, also under -j.
ifneq ($(filter run test,$(MAKECMDGOALS)),)
$(all_objects): | install-dependencies
endif

$(filter-out %/builtin_model.o %/page.o,$(all_objects)): $(OUT)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(compile)

$(OUT)/app/builtin_model.o: app/builtin_model.S $(BUILTIN_MODEL)
	$(call say,AS,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -DBUILTIN_MODEL='"$(BUILTIN_MODEL)"' -MMD -MP -c -o $@ $<

$(OUT)/app/serve/page.o: app/serve/page.S $(wildcard app/page/*)
	$(call say,AS,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(program): $(if $(wildcard app/builtin_model.S),$(BUILTIN_MODEL))
$(BUILTIN_MODEL):
	@echo 'The built-in model, $@, is missing. BUILTIN_MODEL=FILE.gguf names another.' >&2; exit 1

# Changes when a source appears or goes, so that what was made of the old set is made again.
$(OUT)/sources.list: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(sort $(sources)) | cmp -s - $@ || printf '%s\n' $(sort $(sources)) >$@

$(OUT)/libcellar.a: $(call objects,$(lib_sources))
$(OUT)/libapp.a: $(call objects,$(app_sources))
$(OUT)/libsupport.a: $(call objects,$(support_sources))
$(OUT)/libcellar.a $(OUT)/libapp.a $(OUT)/libsupport.a: $(OUT)/sources.list
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# clang's sanitizers leave their run-time's names open in a shared library.
$(OUT)/libcellar.so.$(VERSION): $(call objects,$(lib_sources)) $(OUT)/sources.list
	$(call say,LINK,$@)
	$(Q)$(link) -shared -Wl,-soname,libcellar.so.$(SOVERSION) $(if $(SANITIZE),,-Wl,-z,defs) \
		-o $@ $(filter %.o,$^) -lm

$(OUT)/libcellar.so: $(OUT)/libcellar.so.$(VERSION)
	@ln -sf libcellar.so.$(VERSION) $(OUT)/libcellar.so.$(SOVERSION)
	@ln -sf libcellar.so.$(SOVERSION) $@

$(programs) $(fuzz_programs): $(OUT)/libsupport.a $(OUT)/libapp.a $(OUT)/libcellar.a $(OUT)/sources.list
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(link) $(FUZZER) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(TEST_LIBS) $(LDLIBS) $(APP_LIBS) -lm

# It is `cellar` that is tested there.
$(OUT)/tests/chat_terminal: | $(program)

$(fuzz_programs): FUZZER = -fsanitize=fuzzer
$(fuzz_programs): $(OUT)/%: $(OUT)/%.o

-include $(all_objects:.o=.d)

# build/cellar and its companions: links to the latest default build. A link is only written when it changes.
linked := cellar tests/replay libcellar.a libcellar.so libcellar.so.$(SOVERSION)
.PHONY: links
links: $(libraries) $(program)
	@for file in $(linked); do \
		name=$(BUILD)/$${file##*/}; target=$(notdir $(OUT))/$$file; \
		test -e "$(OUT)/$$file" || continue; \
		test "$$(readlink "$$name" 2>/dev/null)" = "$$target" || ln -sf "$$target" "$$name"; \
	done

# ---- tests -----------------------------------------------------------------------------------------

has_cxx := $(shell command -v $(CXX) 2>/dev/null)
headers := $(if $(wildcard tests/header.c),$(OUT)/tests/header_c) \
	$(if $(wildcard tests/header.cpp),$(if $(has_cxx),$(OUT)/tests/header_cxx $(OUT)/tests/header_plus))
header_flags = -Iinclude -pedantic -Wall -Wextra -Werror $(CFLAGS) $(SANITIZERS) $(LDFLAGS)

$(OUT)/tests/header_c: tests/header.c include/cellar.h $(OUT)/libcellar.a
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 $(header_flags) -o $@ $< $(OUT)/libcellar.a -lm

$(OUT)/tests/header_cxx: tests/header.cpp include/cellar.h $(OUT)/libcellar.a
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++11 $(header_flags) -o $@ $< $(OUT)/libcellar.a -lm

$(OUT)/tests/header_plus: tests/header_plus.cpp include/cellar.hpp include/cellar.h $(OUT)/libcellar.a
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -Wshadow $(header_flags) -o $@ $< $(OUT)/libcellar.a -lm

# What the tests run, in order. `@scalar` runs a program a second time with CELLAR_CPU=scalar.
corpora := $(foreach f,$(fuzzers),$(if $(wildcard fuzz/corpus/$(f)/*),$(OUT)/fuzz/corpus_$(f)))
test_programs := $(addprefix $(OUT)/,$(units) $(filter-out %/replay,$(mains))) $(headers) $(corpora)
test_scripts := $(if $(filter %/replay,$(mains)),$(wildcard tests/golden.sh)) \
	$(if $(program),$(wildcard tests/cli/cli.sh)) $(if $(examples),$(wildcard tests/examples.sh tests/embedding.sh)) \
	$(if $(program),$(wildcard tests/clients.sh tests/live_page.sh tests/operation.sh)) $(wildcard tests/ggml.sh tests/pages.sh tests/python.sh) \
	$(if $(filter yes,$(SHARED)),$(wildcard tests/shared_tier.sh))
needed_by_scripts := $(program) $(OUT)/libcellar.so $(addprefix $(OUT)/,$(filter %/replay,$(mains)) $(examples))
twice := $(filter %/scenarios %/golden.sh,$(test_programs) $(test_scripts))
chosen = $(if $(ONLY),$(foreach t,$(1),$(if $(filter $(ONLY),$(basename $(notdir $(t)))),$(t))),$(1))
# They run beside each other: the longest are begun first, so that none of them is waited for alone.
long := $(addprefix %/,attention_matrix differential kernel_check unit_session_hostile cli.sh shared_tier.sh)
in_order = $(filter $(long),$(1)) $(filter-out $(long),$(1))
test_list := $(call in_order,$(call chosen,$(test_programs) $(test_scripts))) \
	$(addsuffix @scalar,$(call chosen,$(twice)))
test_needs := $(call chosen,$(test_programs)) \
	$(if $(strip $(call chosen,$(test_scripts))),$(needed_by_scripts)) $(if $(ONLY),,$(libraries) $(program))

all_tests := $(basename $(notdir $(test_programs) $(test_scripts)))
unknown_tests = $(strip $(foreach t,$(ONLY),$(if $(filter $(t),$(all_tests)),,$(t))))
ifneq ($(filter check test,$(MAKECMDGOALS)),)
$(if $(unknown_tests),$(error there is no test $(unknown_tests); there are: $(sort $(all_tests))))
endif

check: $(test_needs) $(if $(is_default),$(if $(ONLY),,links))
	@OUT=$(OUT) EXEC="$(EXEC)" CC="$(CC)" CXX="$(CXX)" SANITIZE="$(SANITIZE)" SANITIZERS="$(SANITIZERS)" SHELL=/bin/sh \
		tools/run_tests.sh $(test_list) \
		$(if $(ONLY)$(has_cxx),,'header_cxx@skip:no C++ compiler' 'header_plus@skip:no C++ compiler')

test: check

.PHONY: symbols lint format valgrind nightly programs aarch64-check
symbols: $(libraries) $(OUT)/libapp.a
	@OUT=$(OUT) tests/symbols.sh

# With a cross compiler and an emulator; installs nothing, and says so where one of them is missing.
aarch64-check:
	@MAKE="$(MAKE)" tests/aarch64.sh

lint:
	@tools/lint.sh

format:
	clang-format -i $(wildcard include/*.h include/*.hpp lib/*.[ch] kernels/*.[ch] app/*.[ch] app/*/*.[ch] tests/*.[ch] \
		tests/*/*.[ch] fuzz/*.[ch] examples/*.[ch] examples/*/*.[ch])

# Everything that can be built, run or not.
programs: all $(programs)

# The core: everything but the model-sized tests.
valgrind: $(addprefix $(OUT)/,$(units) $(filter %/differential,$(mains)))
	@OUT=$(OUT) EXEC='valgrind -q --max-threads=1000 --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,possible' \
		DIFFERENTIAL_ARGUMENTS='--operations 2000' tools/run_tests.sh $^

nightly:
	@tools/nightly.sh

# ---- measuring and fuzzing -------------------------------------------------------------------------

.PHONY: bench fuzz
bench: $(program) $(if $(is_default),links)
	@for part in machine memory session model parallel; do \
		printf '== cellar bench %s\n' $$part; $(EXEC) $(program) bench $$part || exit 1; done

fuzz: $(fuzz_programs)
	@OUT=$(OUT) TIME=$(TIME) tools/fuzz.sh $(fuzzers)

# ---- running ---------------------------------------------------------------------------------------

run: all
	$(Q)$(EXEC) $(OUT)/cellar run -p $(call quoted,$(PROMPT)) $(if $(N),-n $(N))

.PHONY: install-dependencies clean help where
install-dependencies:
	@CC="$(CC)" SHARED="$(SHARED)" tools/install_dependencies.sh $(if $(filter test,$(MAKECMDGOALS)),test,run)

clean:
	rm -rf $(BUILD)

include packaging/packaging.mk

# The folder of this configuration, for scripts: make -s where SANITIZE=thread
where:
	@echo $(OUT)

define help_text
make                  the program (build/cellar) and the libraries
make run              install what is missing, build, tell a story   PROMPT="..." N=tokens
make test             install what is missing, then make check
make check            build and run all tests; needs no network      ONLY="unit_runs replay"
make bench            build, then every 'cellar bench'
make fuzz TIME=60     fuzz every parser for TIME seconds (clang)
make valgrind         the core's tests under valgrind
make symbols          only our own names are exported; no AVX outside its files
make aarch64-check    cross-compile for AArch64, run the core's tests in an emulator
make installcheck     install to a scratch folder, build a foreign program against it
make lint             format, whitespace, include directions, lengths
make format           let clang-format 14 write what lint would complain about
make programs         build everything there is, tests and measurements too
make nightly          the long tests
make install          DESTDIR= PREFIX=/usr/local LIBDIR=PREFIX/lib; docs/packaging.md says what
make uninstall        remove what install put there
make dist             build/cellar-VERSION.tar.xz, the same bytes each time
make clean            remove build/
make where            print the folder of this configuration

CC=clang  SANITIZE=address,undefined  SANITIZE=thread  CFLAGS="-O2 -g"  EXEC=WRAPPER  V=1
SHARED=no  without hiredis and OpenSSL: no 'cellar serve --shared'
endef
help:
	$(info $(help_text))
	@:
