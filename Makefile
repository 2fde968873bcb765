# headlight: one GNU Makefile.  `make help` lists the targets.
#
# Everything that is built goes under $(BUILD), so that builds with other
# compilers and sanitizers live beside each other:
#
#     make                                   gcc, optimized, in build/
#     make CC=clang BUILD=build/clang        the same with clang
#     make SANITIZE=address BUILD=build/asan instrumented
#     make check TESTS="test_file test_json" only these tests
#     make CUDA=1                            and build/libheadlight_cuda.so
#
# Sources are found by wildcard: a new .c file in a folder below needs no edit
# here.  Object files depend on the headers they include (-MMD) and on the
# flags they were built with ($(BUILD)/flags).

# The version number is in the header.
VERSION := $(shell awk '$$2 ~ /^HL_VERSION_(MAJOR|MINOR|PATCH)$$/ { printf "%s%s", dot, $$3; dot = "." }' include/headlight/base.h)
MAJOR   := $(firstword $(subst ., ,$(VERSION)))

BUILD     ?= build
PREFIX    ?= /usr/local
LIBDIR    ?= $(PREFIX)/lib
MANDIR    ?= $(PREFIX)/share/man
CFLAGS    ?= -O2 -g
SANITIZE  ?=
# Empty: build without the hardening flags below.
HARDEN    ?= 1
# 1: kernel tests only, for a cross compiler without the target's libraries.
KERNELS_ONLY ?=
FUZZ_SECONDS ?= 60
# 1: build with MPI, to measure on many machines (tools/deps mpi).
MPI       ?=
# 1: also build libheadlight_cuda.so, for NVIDIA GPUs.  Needs CUDA's compiler, 12.3 or later.
CUDA      ?=

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

.PHONY: all
all: ## the library (static and shared) and the program

# ---------------------------------------------------------------- the machine

ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null || uname -m)))
ARCH := $(patsubst arm64,aarch64,$(patsubst amd64,x86_64,$(ARCH)))
JOBS := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

# A nested make: with the caller's -j, else on all cores.  Recipes put a + before it, which shares
# the caller's job slots.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

# Instruction sets with source files of their own, by the suffix of the files' names.
ARCH_SUFFIXES_x86_64  := avx2 avx512
ARCH_SUFFIXES_aarch64 := neon
ARCH_SUFFIXES         := $(ARCH_SUFFIXES_$(ARCH))
OTHER_SUFFIXES        := $(filter-out $(ARCH_SUFFIXES),avx2 avx512 neon)
FLAGS_avx2            := -mavx2 -mfma -mf16c
FLAGS_avx512          := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl

# -------------------------------------------------------------------- sources

FOLDERS := base formats kernels tokenize stats model measure analysis generate prune render serve
SOURCES := $(sort $(foreach folder,$(FOLDERS),$(wildcard src/$(folder)/*.c)))
ifdef KERNELS_ONLY
SOURCES := $(filter-out %/json.c %/gemm.c %/linear.c %/probe.c,$(filter src/base/% src/kernels/%,$(SOURCES)))
endif
SOURCES := $(filter-out $(OTHER_SUFFIXES:%=\%_%.c),$(SOURCES))

CLI_SOURCES     := $(wildcard cli/*.c)
# tests/test_NAME.c is a program; other files in tests/ are linked into all of them.
# tests/test_cli_NAME.c tests parts of the program, and may include cli/.
TEST_SOURCES    := $(wildcard tests/test_*.c)
TEST_SHARED     := $(filter-out $(TEST_SOURCES),$(wildcard tests/*.c))
FUZZ_SOURCES    := $(wildcard fuzz/fuzz_*.c)
EXAMPLE_SOURCES := $(wildcard examples/*.c)
# bench/bench_NAME.c is a program; other files in bench/ are linked into each.
BENCH_SOURCES   := $(wildcard bench/bench_*.c)
BENCH_SHARED    := $(filter-out $(BENCH_SOURCES) $(OTHER_SUFFIXES:%=\%_%.c),$(wildcard bench/*.c))
HEADERS         := $(sort $(wildcard include/*.h include/*/*.h src/*/*.h))

# One file, built from web/ and committed, so that building headlight does not need npm.
PAGE            := web/dist/headlight.html

comma   := ,
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

# ---------------------------------------------------------------------- flags

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wundef -Wvla \
            -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith \
            -Wwrite-strings
# In CI a warning is an error.
ifneq ($(filter true 1,$(CI) $(WERROR)),)
WARNINGS += -Werror
endif

# HL_HAVE_AVX2 and similar macros: this build has kernels for that instruction set.
HAVE_avx2   := AVX2
HAVE_avx512 := AVX512
HAVE_neon   := NEON
DEFINES     := -D_DEFAULT_SOURCE \
    $(foreach isa,$(ARCH_SUFFIXES),$(if $(filter src/kernels/%_$(isa).c,$(SOURCES)),-DHL_HAVE_$(HAVE_$(isa))=1))

# Hardening: stack canaries, checked copies, restricted jump targets, and address tables that are
# read-only before the program begins.  Flags that a compiler does not know are left out. Sanitizers
# have their own checks, which FORTIFY would hide; FORTIFY also needs an optimizer.
accepts     = $(shell $(CC) $(1) -Werror -include stdio.h -x c -c -o /dev/null /dev/null 2>/dev/null && echo '$(1)')
FORTIFY    :=
HARD_FLAGS :=
HARD_LINK  :=
HARD_PIE   :=
ifneq ($(HARDEN),)
ifeq ($(SANITIZE)$(findstring _FORTIFY_SOURCE,$(CFLAGS)),)
ifneq ($(filter -O1 -O2 -O3 -Os,$(CFLAGS)),)
FORTIFY    := $(or $(call accepts,-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
FORTIFY    := $(filter-out -O2,$(FORTIFY))
endif
endif
HARD_FLAGS := $(call accepts,-fstack-protector-strong) $(if $(filter x86_64,$(ARCH)),$(call accepts,-fcf-protection)) \
              $(if $(filter aarch64,$(ARCH)),$(call accepts,-mbranch-protection=standard)) $(FORTIFY)
ifndef KERNELS_ONLY
HARD_LINK  := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
HARD_PIE   := -pie
endif
endif

# No -ffast-math: masks are infinities.  No contraction: fused multiply-adds are used only where a
# kernel requests them, so that all compilers agree.
COMMON_FLAGS := -std=c17 $(HARD_FLAGS) $(CFLAGS) -fno-math-errno -ffp-contract=off -fvisibility=hidden -fPIC \
                -pthread $(WARNINGS) $(DEFINES) -Iinclude
ifneq ($(SANITIZE),)
COMMON_FLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
endif

PKG_CONFIG  ?= pkg-config
LIBS        := -lm
TEST_LIBS   :=
TEST_FLAGS  := -Isrc -Itests -Wno-conversion
ifdef KERNELS_ONLY
TEST_FLAGS  := -Itests/shim $(TEST_FLAGS)
LDFLAGS     += -static -Wl,--no-warnings
else
PACKAGES    := jansson libpcre2-8 libutf8proc pangocairo cairo-pdf
# Headers only: OpenBLAS is opened at run time when it is needed (src/kernels/gemm.c).
HEADERS_OF  := openblas
# Headers of other libraries are system headers: no warnings about them.
LIB_FLAGS   := $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(PACKAGES) $(HEADERS_OF) 2>/dev/null))
LIBS        := $(or $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null),-ljansson -lpcre2-8 -lutf8proc -lpangocairo-1.0 -lpango-1.0 -lgobject-2.0 -lglib-2.0 -lcairo) -ldl $(LIBS)
TEST_LIBS   := $(or $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null),-lcmocka)
endif
# MPI=1: profiles of many machines.
ifneq ($(filter 1 yes true,$(MPI)),)
MPI_FLAGS   := -DHL_HAVE_MPI=1 $(shell $(PKG_CONFIG) --cflags ompi-c)
LIBS        += $(shell $(PKG_CONFIG) --libs ompi-c)
endif
ifneq ($(filter 1 yes true,$(WHEEL)),)
# A wheel's own libraries are below it.  DT_RPATH, unlike RUNPATH, holds for the libraries that these need.
LDFLAGS     += -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/libs'
endif
LINK_FLAGS  := $(CFLAGS) -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(HARD_LINK) $(LDFLAGS)

# The flags of one source file: by its folder, then by its instruction set.  With a sanitizer,
# vector kernels take gcc minutes at -O3 and are not tested better; loops that request vectorization
# cannot be vectorized then, and clang would warn. cli/ and examples/ do not get -Isrc.
folder_flags = \
    $(if $(filter src/%,$(1)),-Isrc $(LIB_FLAGS)) \
    $(if $(filter src/kernels/% src/stats/% src/measure/measure% bench/%,$(1)),$(if $(and $(SANITIZE),$(strip $(call isa_flags,$(1)))),,-O3)) \
    $(if $(and $(SANITIZE),$(filter src/kernels/%,$(1))),-Wno-pass-failed) \
    $(if $(filter src/stats/profile_mpi.c,$(1)),$(MPI_FLAGS)) \
    $(if $(filter src/render/page.c,$(1)),-DHL_PAGE_FILE='"$(PAGE)"') \
    $(if $(filter cli/%,$(1)),-Icli $(LIB_FLAGS)) \
    $(if $(filter tests/% fuzz/%,$(1)),$(TEST_FLAGS) $(LIB_FLAGS)) \
    $(if $(filter tests/test_cli_%,$(1)),-Icli) \
    $(if $(filter web/%,$(1)),-Isrc $(LIB_FLAGS)) \
    $(if $(filter bench/%,$(1)),-Isrc -Wno-conversion -fopenmp)
isa_flags    = $(foreach isa,$(ARCH_SUFFIXES),$(if $(filter %_$(isa).c %_$(isa).h,$(1)),$(FLAGS_$(isa))))
flags_of     = $(COMMON_FLAGS) $(call folder_flags,$(1)) $(call isa_flags,$(1))

# Rewritten only if the flags have changed; every object depends on it.
ALL_FLAGS := $(CC) HARDEN=$(HARDEN) $(COMMON_FLAGS) $(LIB_FLAGS) $(TEST_FLAGS) $(FLAGS_avx512) $(LINK_FLAGS) $(LIBS) $(VERSION)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(ALL_FLAGS))' | cmp -s - $@ || \
	    printf '%s\n' '$(subst ','\'',$(ALL_FLAGS))' > $@
.PHONY: FORCE
FORCE:

# ---------------------------------------------------------------------- rules

# `make V=1` shows the commands.
ifdef V
say = @:
run =
else
say = @printf '  %-5s %s\n' $(1) $(2)
run = @
endif

LIBRARY := $(BUILD)/libheadlight.a
SHARED  := $(BUILD)/libheadlight.so
PROGRAM := $(BUILD)/headlight

all: $(LIBRARY) $(if $(KERNELS_ONLY),,$(SHARED)) $(if $(CLI_SOURCES),$(PROGRAM))
	@:

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(run)$(CC) $(call flags_of,$<) -MMD -MP -c -o $@ $<

# The page of reports is embedded in the library.
$(BUILD)/obj/src/render/page.o: $(PAGE)

$(LIBRARY): $(call objects,$(SOURCES))
	$(call say,AR,$@)
	@rm -f $@
	$(run)$(AR) rcs $@ $^

# Every function that the library exports has a version, which the loader compares: HEADLIGHT_0.1 in
# all releases 0.1.x, HEADLIGHT_1 in all releases 1.x.  Functions without HL_API are hidden before
# linking.
ABI     := HEADLIGHT_$(MAJOR)$(if $(filter 0,$(MAJOR)),.$(word 2,$(subst ., ,$(VERSION))))
EXPORTS := $(BUILD)/exports.map
$(EXPORTS): $(BUILD)/flags
	$(run)printf '%s {\n    global: hl_*;\n    local: *;\n};\n' $(ABI) > $@

$(SHARED): $(call objects,$(SOURCES)) $(EXPORTS)
	$(call say,LINK,$@)
	$(run)$(CC) -shared -Wl,-soname,libheadlight.so.$(MAJOR) -Wl,--version-script=$(EXPORTS) $(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(filter %.o,$^) $(LINK_FLAGS) $(LIBS)
	@ln -sf libheadlight.so $@.$(MAJOR)

# The GPU code is a separate library, opened at run time.  The Hopper kernels are for sm_90a only;
# the others also for sm_80 and, as PTX, for later GPUs.
NVCC         ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_LIBRARY := $(BUILD)/libheadlight_cuda.so
CUDA_SOURCES := $(wildcard src/kernels/cuda/*.cu)
CUDA_FLAGS   := -std=c++17 -O3 -Iinclude -Isrc -Xcompiler -fPIC,-fvisibility=hidden,-Wall$(if $(HARDEN),$(comma)-fstack-protector-strong) \
                -gencode arch=compute_90a,code=sm_90a
CUDA_COMMON  := -gencode arch=compute_80,code=[sm_80,compute_80]

ifneq ($(filter 1 yes true,$(CUDA)),)
ifeq ($(NVCC),)
$(error CUDA=1 needs nvcc, CUDA's compiler: it is neither on the PATH nor in /usr/local/cuda/bin; NVCC=path names it)
endif
all: $(CUDA_LIBRARY)
endif

$(BUILD)/obj/%.cu.o: %.cu Makefile
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(run)$(NVCC) $(CUDA_FLAGS) -MMD -MP $(if $(or $(findstring hopper,$<),$(findstring bench/,$<)),,$(CUDA_COMMON)) -c -o $@ $<

# Stored blocks must decode to the CPU's values, to the bit: no fused multiply-adds.
$(BUILD)/obj/src/kernels/cuda/model_values.cu.o: CUDA_FLAGS += -fmad=false

$(CUDA_LIBRARY): $(CUDA_SOURCES:%=$(BUILD)/obj/%.o)
	$(call say,LINK,$@)
	$(run)$(NVCC) -shared -cudart static $(HARD_LINK:-Wl$(comma)%=-Xlinker %) -o $@ $^ -ldl

# bench/ladder: the steps to the Hopper kernel, checked and timed by one driver.
LADDER_SOURCES := $(wildcard bench/ladder/*.cu)

$(LADDER_SOURCES:%=$(BUILD)/obj/%.o): $(wildcard bench/ladder/*.h bench/ladder/*.cuh)

$(BUILD)/ladder: $(LADDER_SOURCES:%=$(BUILD)/obj/%.o)
	$(call say,LINK,$@)
	$(run)$(NVCC) -cudart static -o $@ $^

# Links a program from its objects and the static library.
define link
$(call say,LINK,$@)
@mkdir -p $(@D)
$(run)$(CC) $(HARD_PIE) -o $@ $(filter %.o,$^) $(or $(2),$(LIBRARY)) $(LINK_FLAGS) $(1) $(LIBS)
endef

# For dlopen: the GPU library is beside the program, or is installed.  Distributions set RPATH= and
# install it where the loader searches.
RPATH ?= $$ORIGIN:$$ORIGIN/../lib
# 1: the program uses libheadlight.so; else the library is linked into it.
SHARED_PROGRAM  ?=
PROGRAM_LIBRARY := $(if $(filter 1 yes true,$(SHARED_PROGRAM)),$(SHARED),$(LIBRARY))
$(PROGRAM): $(call objects,$(CLI_SOURCES)) $(PROGRAM_LIBRARY)
	$(call link,$(if $(RPATH),-Wl$(comma)-rpath$(comma)'$(RPATH)'),$(PROGRAM_LIBRARY))

$(BUILD)/examples/%: $(BUILD)/obj/examples/%.o $(LIBRARY)
	$(call link)

$(BUILD)/tests/test_%: $(BUILD)/obj/tests/test_%.o $(call objects,$(TEST_SHARED)) $(LIBRARY)
	$(call link,$(TEST_LIBS))

# Tests of parts of the program: linked with all of it but main.
$(BUILD)/tests/test_cli_%: $(BUILD)/obj/tests/test_cli_%.o $(call objects,$(filter-out cli/main.c,$(CLI_SOURCES))) $(LIBRARY)
	$(call link,$(TEST_LIBS))

# The tests replace fread, to change files while they are read.
$(BUILD)/tests/test_cli_input: TEST_LIBS += -Wl,--wrap=fread
$(BUILD)/tests/test_threads: TEST_LIBS += -Wl,--wrap=open

# The tests replace the program's own allocation functions, which can then fail.
$(BUILD)/tests/test_cli_faults: TEST_LIBS += $(foreach name,malloc calloc realloc,-Wl$(comma)--wrap=$(name))

# The test records which files are synced before they are renamed.
$(BUILD)/tests/test_file: TEST_LIBS += $(foreach name,fsync rename,-Wl$(comma)--wrap=$(name))

# A fuzz target is linked twice: with libFuzzer by `make fuzz`, and here with replay.c, whose main
# feeds it the stored corpus.
$(BUILD)/tests/replay_%: $(BUILD)/obj/fuzz/fuzz_%.o $(BUILD)/obj/fuzz/replay.o $(LIBRARY)
	$(call link)

$(BUILD)/fuzz/fuzz_%: $(BUILD)/obj/fuzz/fuzz_%.o $(LIBRARY)
	$(call link,-fsanitize=fuzzer)

# OpenMP is for the plain methods that benchmarks compare with.
$(BUILD)/bench_%: $(BUILD)/obj/bench/bench_%.o $(call objects,$(BENCH_SHARED)) $(LIBRARY)
	$(call link,-fopenmp)

# Objects are intermediate files; keep them.
.PRECIOUS: $(BUILD)/obj/%.o
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ----------------------------------------------------------------- demo, bench

.PHONY: demo gallery bench
demo: ## set up, build, check the kernels, and measure, show and draw the demo models
	@tools/deps demo
	@+$(SUBMAKE) all
	$(PROGRAM) verify tests/data/attention/*.safetensors
	$(PROGRAM) demo -o demo --as $(PROGRAM)

gallery: ## draw the figures of doc/gallery.md again, by the commands that stand in it
	@+$(SUBMAKE) all
	@tools/gallery $(PROGRAM)

bench: ## set up, build and run the benchmarks
	@tools/deps bench
	@+$(SUBMAKE) all $(BENCH_SOURCES:bench/%.c=$(BUILD)/%)
	@for program in $(BENCH_SOURCES:bench/%.c=$(BUILD)/%); do $$program || exit 1; done

# ----------------------------------------------------------------------- tests
#
# `make check` runs runners: programs that print TAP. tools/run_tests runs them, shows what failed
# and adds up.  TESTS names some of the runners under $(BUILD)/tests and of the scripts
# (tests/cli/show.sh); without it all of them run, together with the tests of the tree and the tools.

TESTS ?=
ALL_TESTS := $(TEST_SOURCES:tests/%.c=%) $(FUZZ_SOURCES:fuzz/fuzz_%.c=replay_%)
ifdef KERNELS_ONLY
ALL_TESTS := $(filter test_attention_agreement test_dense_agreement test_int8 test_quant_agreement test_row_state test_team,$(ALL_TESTS))
endif
RUNNERS   := $(addprefix $(BUILD)/tests/,$(filter-out %.sh,$(or $(TESTS),$(ALL_TESTS))))
SCRIPTS   := $(if $(TESTS)$(KERNELS_ONLY),$(filter %.sh,$(TESTS)),$(wildcard tests/cli/*.sh))
# TOOL_TESTS test the tree and the tools, not the build; callers may add EXTRA_TESTS.
TOOL_TESTS := $(if $(TESTS)$(KERNELS_ONLY),,tools/check_layers tools/check_headers tools/check_format \
              tools/check_names tools/check_cppcheck tools/check_words $(wildcard tests/tools/*.sh))
RUN_TESTS  = BUILD='$(BUILD)' CC='$(CC)' CXX='$(CXX)' HEADLIGHT='$(PROGRAM)' DOCUMENTS='$(DOCUMENTS)' \
             tools/run_tests --logs $(BUILD)/tests/logs $(TALLY)

# Two runners at a time: most use one core at a time.  Those of ALONE measure time, or wait for it.
TEST_JOBS ?= 2
ALONE     := busy checkpoints hostile measure memory serve sweep test_engine test_engine_jobs test_threads \
             test_tokenize_budget try watch windows

.PHONY: check check-programs run-tests
check: ## set up, build and run all quick tests; TESTS="test_file ..." picks some
	@tools/deps check
	@+$(SUBMAKE) all check-programs
	@$(RUN_TESTS) --jobs $(TEST_JOBS) --alone '$(ALONE)' $(RUNNERS) $(SCRIPTS) $(TOOL_TESTS)

check-programs: $(RUNNERS) $(if $(SCRIPTS),$(EXAMPLE_SOURCES:%.c=$(BUILD)/%))

# The tests without installing packages and without the tools: for instrumented builds.
run-tests: check-programs $(if $(KERNELS_ONLY),,all)
	@$(RUN_TESTS) $(EXTRA_TESTS) $(RUNNERS) $(SCRIPTS)

DOCUMENTS := README.md CONTRIBUTING.md $(wildcard doc/*.md)
.PHONY: check-docs
check-docs: ## run the commands of the documents, and compare what they print with what is shown
	@tools/deps check
	@+$(SUBMAKE) all
	@$(RUN_TESTS) tests/docs/run.sh

# ------------------------------------------------------------------ the web page
#
# Only these two need npm: the page that they build is committed.

.PHONY: web check-web
web: ## build web/dist/headlight.html, the page of reports, from web/src (npm)
	@tools/deps web
	cd web && npm run --silent build

$(BUILD)/web/palette: $(BUILD)/obj/web/test/palette.o $(LIBRARY)
	$(call link)

check-web: ## set up, build and test the page, in a browser; skipped where there is none
	@tools/deps check-web
	@+$(SUBMAKE) all $(BUILD)/web/palette
	@HEADLIGHT_PALETTE='$(BUILD)/web/palette' $(RUN_TESTS) \
	    web/test/current.sh web/test/unit.sh web/test/browser.sh web/test/live.sh web/test/pictures.sh

# --------------------------------------------------- Python with PyTorch and transformers

.PHONY: check-python
check-python: ## the Python package with PyTorch and transformers from PyPI, in build/python_env; skipped where PyPI cannot be reached
	@tools/deps check
	@+$(SUBMAKE) all
	@$(RUN_TESTS) tests/python/newest.sh

.PHONY: check-python-classes
check-python-classes: ## every class of transformers that can be built small: right, measured by its matrices, or refused by name; 10 minutes
	@tools/deps check
	@+$(SUBMAKE) all
	@$(RUN_TESTS) tests/python/classes.sh

# ------------------------------------------------------- the long round of tests

.PHONY: check-mpi
check-mpi: ## measure on several ranks: builds with MPI, in build/mpi
	@tools/deps mpi
	@+$(SUBMAKE) all MPI=1 BUILD=build/mpi
	@HEADLIGHT=build/mpi/headlight tools/run_tests --logs build/mpi/logs $(TALLY) tests/mpi/measure.sh

.PHONY: check-openai bench-serve
check-openai: ## the server against npm's openai package
	@tools/deps check-openai
	@+$(SUBMAKE) $(PROGRAM)
	@HEADLIGHT=$(PROGRAM) tools/run_tests --logs $(BUILD)/tests/logs $(TALLY) tests/serve/openai.sh

SERVE_SECONDS ?= 60
SERVE_MODEL   ?= models/demo
bench-serve: ## the server under 16 clients for SERVE_SECONDS (60): errors, speed, memory; one client against generate
	@+$(SUBMAKE) $(PROGRAM)
	@HEADLIGHT=$(PROGRAM) python3 -B tests/serve/load.py --seconds $(SERVE_SECONDS)
	@HEADLIGHT=$(PROGRAM) python3 -B bench/serve/one_client.py --model $(SERVE_MODEL)

SOAK_SECONDS ?= 120
.PHONY: soak check-faults
soak: ## a server under load and hostile clients, kills and resumes, for SOAK_SECONDS (120)
	@+$(SUBMAKE) $(PROGRAM)
	@HEADLIGHT=$(PROGRAM) python3 -B tests/serve/soak.py --seconds $(SOAK_SECONDS)

SLOW_FLAGS := CFLAGS='-O1 -g' WERROR=1

# Small faults, put one at a time into a copy of the tree in build/mutate.
MUTANTS ?=
.PHONY: mutate
mutate: ## break the code in each of the ways of tests/mutants.txt: tests must notice; MUTANTS="src/base ..." picks some
	@tools/deps check
	@tools/mutate -j $(JOBS) $(TALLY) $(MUTANTS)

# All of them run, even if some fail.
PARTS := 'check HEADLIGHT_KILLS=20' check-asan-gcc check-asan-clang check-faults check-tsan check-web check-python check-python-classes check-mpi mutate \
         check-neon check-docs check-dist check-deb check-wheel lint

.PHONY: check-all check-asan-gcc check-asan-clang check-tsan check-neon
check-all: ## check, then sanitizers (gcc, clang), faults, thread sanitizer, web page, Python, MPI, mutants, NEON in qemu, documents, packages, lint
	@tools/deps check-all
	@+MAKE='$(SUBMAKE)' tools/run_parts $(BUILD)/tally $(PARTS)

# allocator_may_return_null: the tests ask for impossible amounts on purpose.
# intercept_tls_get_addr: clang 14 guesses where a library's thread-local memory begins from
# the bytes before it, and looks for leaks wherever they lead.
ASAN_SETTINGS := ASAN_OPTIONS=allocator_may_return_null=1:intercept_tls_get_addr=0 \
                 LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0
check-asan-gcc: ## the tests under gcc's address and undefined-behavior sanitizers
	@+$(ASAN_SETTINGS) $(SUBMAKE) run-tests CC=gcc \
	    BUILD=build/asan-gcc SANITIZE=address,undefined $(SLOW_FLAGS)
check-asan-clang: ## all tests under clang's sanitizers
	@+$(ASAN_SETTINGS) $(SUBMAKE) run-tests CC=clang \
	    BUILD=build/asan-clang SANITIZE=address,undefined $(SLOW_FLAGS)

# Every allocation and system call fails in turn; some are repeated under a sanitizer that detects
# leaks.  The numbers are in the logs, and printed at the end.  ASAN_FAULTS=all takes hours.
FAULT_TESTS := test_cli_faults test_faults_serve
ASAN_FAULTS ?= 200
FAULT_LOGS  := $(foreach build,$(BUILD) build/asan-gcc,$(FAULT_TESTS:%=$(build)/tests/logs/%.log))
check-faults: ## every fault that can be injected, and ASAN_FAULTS (200) a kind under the address sanitizer: takes minutes
	@+HEADLIGHT_FAULTS=all HEADLIGHT_TEST_TIMEOUT=7200 $(SUBMAKE) run-tests TESTS='$(FAULT_TESTS)'
	@+$(ASAN_SETTINGS) HEADLIGHT_FAULTS=$(ASAN_FAULTS) HEADLIGHT_TEST_TIMEOUT=7200 $(SUBMAKE) run-tests CC=gcc \
	    BUILD=build/asan-gcc SANITIZE=address,undefined $(SLOW_FLAGS) TESTS='$(FAULT_TESTS)'
	@sed -n 's/^# faults //p' $(FAULT_LOGS)
	@sed -n 's/^# faults.\{25\}//p' $(FAULT_LOGS) | \
	    awk '{ for (i = 1; i <= NF; i++) if ($$i ~ /^[0-9]+$$/) sum += $$i } END { print sum " calls failed" }'

check-tsan: ## the tests under clang's thread sanitizer
	@+TSAN_OPTIONS='ignore_noninstrumented_modules=1 allocator_may_return_null=1 die_after_fork=0' $(SUBMAKE) run-tests CC=clang \
	    BUILD=build/tsan SANITIZE=thread EXTRA_TESTS=tools/check_tsan $(SLOW_FLAGS)

check-neon: ## the kernel tests, cross-compiled for arm64, under qemu
	@+$(SUBMAKE) run-tests CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar BUILD=build/neon \
	    KERNELS_ONLY=1 WERROR=1 TALLY='$(TALLY) --with qemu-aarch64-static'

# Debian has no arm64 package of jansson for cross compiling, so the whole program needs a folder
# with one: `apt-get download libjansson-dev:arm64` and `dpkg -x` make it.
.PHONY: verify-neon
verify-neon: ## ARM64_ROOT=dir: the golden cases on NEON, the whole program under qemu
	@test -n '$(ARM64_ROOT)' || { echo 'ARM64_ROOT: a folder with jansson for arm64'; exit 2; }
	@+$(SUBMAKE) build/neon-program/headlight BUILD=build/neon-program PKG_CONFIG=false \
	    CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar CFLAGS='-O2 -I$(ARM64_ROOT)/usr/include' \
	    LDFLAGS='-static -L$(ARM64_ROOT)/usr/lib/aarch64-linux-gnu'
	qemu-aarch64-static build/neon-program/headlight verify \
	    $(or $(wildcard $(or $(HEADLIGHT_SHARED),../shared)/golden/attention/*.safetensors),tests/data/attention/*.safetensors)

# ---------------------------------------------------------------- fuzzing, lint

.PHONY: fuzz fuzz-programs fuzz-coverage replay-programs lint tidy format
fuzz: ## fuzz every parser for FUZZ_SECONDS (60) each, with clang's libFuzzer
	@tools/deps fuzz
	@+$(SUBMAKE) fuzz-programs CC=clang BUILD=build/fuzz CFLAGS='-O1 -g' \
	    SANITIZE=fuzzer-no-link,address,undefined
	@BUILD=build/fuzz tools/fuzz $(FUZZ_SECONDS) $(FUZZ_SOURCES:fuzz/fuzz_%.c=%)

fuzz-programs: $(FUZZ_SOURCES:fuzz/%.c=$(BUILD)/fuzz/%)

fuzz-coverage: ## lines of each parser that its stored corpus reaches; at least 90% of all
	@tools/deps fuzz
	@+$(SUBMAKE) replay-programs CC=clang BUILD=build/fuzz-coverage \
	    CFLAGS='-O1 -g -fprofile-instr-generate -fcoverage-mapping'
	@BUILD=build/fuzz-coverage tools/fuzz_coverage

replay-programs: $(FUZZ_SOURCES:fuzz/fuzz_%.c=$(BUILD)/tests/replay_%)

C_FILES := $(sort $(HEADERS) $(SOURCES) $(wildcard src/*/*.c cli/*.[ch] tests/*.[ch] tests/*/*.[ch] \
             fuzz/*.[ch] bench/*.[ch] examples/*.[ch] web/test/*.c))

lint: ## clang-format, cppcheck, shellcheck and clang-tidy over everything
	@+status=0; \
	BUILD='$(BUILD)' tools/run_tests --logs $(BUILD)/tests/logs $(TALLY) \
	    tools/check_format tools/check_cppcheck tools/check_shell || status=1; \
	$(SUBMAKE) -k tidy || status=1; \
	exit $$status

# One stamp per file, which depends on the headers it includes, so that only changed files are
# checked again.
tidy: $(patsubst %.c,$(BUILD)/tidy/%.ok,$(SOURCES) $(CLI_SOURCES))
$(BUILD)/tidy/%.ok: %.c .clang-tidy
	$(call say,TIDY,$<)
	@mkdir -p $(@D)
	$(run)clang-tidy --quiet --warnings-as-errors='*' $< -- $(call flags_of,$<) 2>$@.log || \
	    { cat $@.log; exit 1; }
	@clang $(call flags_of,$<) -MM -MP -MT $@ -MF $(@:.ok=.d) $<
	@touch $@
-include $(shell find $(BUILD)/tidy -name '*.d' 2>/dev/null)

format: ## rewrite all C files the way .clang-format says
	clang-format -i $(C_FILES)

# --------------------------------------------------------------------- install
#
# A list of pairs FROM:TO determines what install copies and what uninstall removes.

# Every command and option of the program: man pages and completions are made from it.
OPTION_TABLE := $(BUILD)/options.tsv
$(OPTION_TABLE): $(PROGRAM)
	$(run)$(PROGRAM) help --table > $@

MAN_SOURCES := $(wildcard doc/man/*.scd)
MAN_PAGES   := $(MAN_SOURCES:doc/man/%.scd=$(BUILD)/man/%)
COMPLETIONS := $(addprefix $(BUILD)/completion/,headlight.bash _headlight headlight.fish)

.PHONY: man man-sources
man: $(MAN_PAGES)
$(BUILD)/man/%.1: doc/man/%.1.scd $(OPTION_TABLE) tools/man_page
	@mkdir -p $(@D)
	$(run)tools/man_page $(OPTION_TABLE) $< > $@.scd && scdoc < $@.scd > $@ && rm $@.scd
$(BUILD)/man/%.3: doc/man/%.3.scd
	@mkdir -p $(@D)
	$(run)scdoc < $< > $@

man-sources: $(OPTION_TABLE) ## bring the options in doc/man to what the program has
	@tools/man_page --update $(OPTION_TABLE) $(filter %.1.scd,$(MAN_SOURCES))

$(COMPLETIONS) &: $(OPTION_TABLE) tools/completion
	@mkdir -p $(@D)
	$(run)tools/completion bash $(OPTION_TABLE) > $(BUILD)/completion/headlight.bash
	$(run)tools/completion zsh  $(OPTION_TABLE) > $(BUILD)/completion/_headlight
	$(run)tools/completion fish $(OPTION_TABLE) > $(BUILD)/completion/headlight.fish

$(BUILD)/headlight.pc: headlight.pc.in $(BUILD)/flags Makefile
	$(run)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' $< > $@

# Man pages are left out where scdoc is not installed.
HAVE_SCDOC := $(shell command -v scdoc 2>/dev/null)
HAVE_CUDA  := $(filter 1 yes true,$(CUDA))
MODELS     := $(filter-out %/expected.safetensors,$(wildcard models/*/*))

INSTALL := \
    $(if $(CLI_SOURCES),$(PROGRAM):$(PREFIX)/bin/headlight) \
    include/headlight.h:$(PREFIX)/include/headlight.h \
    $(foreach part,$(wildcard include/headlight/*.h),$(part):$(PREFIX)/$(part)) \
    $(LIBRARY):$(LIBDIR)/libheadlight.a \
    $(SHARED):$(LIBDIR)/libheadlight.so.$(VERSION) \
    $(if $(HAVE_CUDA),$(CUDA_LIBRARY):$(LIBDIR)/libheadlight_cuda.so) \
    $(BUILD)/headlight.pc:$(LIBDIR)/pkgconfig/headlight.pc \
    $(if $(HAVE_SCDOC),$(foreach page,$(MAN_PAGES),$(page):$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))) \
    $(BUILD)/completion/headlight.bash:$(PREFIX)/share/bash-completion/completions/headlight \
    $(BUILD)/completion/_headlight:$(PREFIX)/share/zsh/site-functions/_headlight \
    $(BUILD)/completion/headlight.fish:$(PREFIX)/share/fish/vendor_completions.d/headlight.fish \
    $(foreach file,$(MODELS),$(file):$(PREFIX)/share/headlight/$(file))
LINKS   := $(LIBDIR)/libheadlight.so.$(MAJOR) $(LIBDIR)/libheadlight.so
from     = $(firstword $(subst :, ,$(1)))
to       = $(DESTDIR)$(lastword $(subst :, ,$(1)))

define install_one
install -D -m $(if $(filter $(PROGRAM) %.so,$(call from,$(1))),755,644) $(call from,$(1)) $(call to,$(1))

endef

.PHONY: install uninstall
install: all $(BUILD)/headlight.pc $(if $(HAVE_SCDOC),man) $(COMPLETIONS) ## everything to PREFIX, below DESTDIR
	$(foreach pair,$(INSTALL),$(call install_one,$(pair)))
	ln -sf libheadlight.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libheadlight.so.$(MAJOR)
	ln -sf libheadlight.so.$(MAJOR) $(DESTDIR)$(LIBDIR)/libheadlight.so

# Uninstall removes whatever install may copy, with or without CUDA, and the folders that only
# install makes, if they are empty.
OWN_FOLDERS := include/headlight share/headlight/models/demo share/headlight/models/demo-sparse \
               share/headlight/models/text share/headlight/models share/headlight
uninstall: ## remove what install put there
	rm -f $(sort $(foreach pair,$(INSTALL),$(call to,$(pair))) $(LINKS:%=$(DESTDIR)%) \
	    $(DESTDIR)$(LIBDIR)/libheadlight_cuda.so \
	    $(foreach page,$(MAN_PAGES),$(DESTDIR)$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page))))
	@for folder in $(OWN_FOLDERS); do rmdir $(DESTDIR)$(PREFIX)/$$folder 2>/dev/null || true; done

# -------------------------------------------------------------------- packages

DIST := headlight-$(VERSION)

.PHONY: wheel
wheel: ## $(BUILD)/wheel/headlight-*.whl: the Python package with all libraries but glibc's
	@+$(SUBMAKE) all WHEEL=1 BUILD=$(BUILD)/wheel
	@HEADLIGHT_BUILD=$(BUILD)/wheel python3 -B python/build_package.py $(BUILD)/wheel

.PHONY: dist deb sbom api check-dist check-deb check-wheel check-fresh
dist: ## $(BUILD)/headlight-VERSION.tar.xz: all of the source, builds without git and network
	@tools/dist $(DIST) $(BUILD)

deb: ## Debian packages in $(BUILD)/deb; headlight-cuda too, where nvcc is
	@tools/deps deb
	@tools/deb $(VERSION) $(BUILD) $(if $(NVCC),,nocuda)

sbom: ## the list of dependencies again: doc/dependencies.md, and as SPDX doc/sbom.spdx.json
	@tools/sbom > $(BUILD)/sbom && mv $(BUILD)/sbom doc/sbom.spdx.json
	@tools/sbom --table > $(BUILD)/sbom && mv $(BUILD)/sbom doc/dependencies.md

metrics: $(PROGRAM) ## the short definitions in doc/metrics.md again, from src/analysis/definitions.c
	@tools/metrics_page $(PROGRAM) > $(BUILD)/metrics && mv $(BUILD)/metrics doc/metrics.md

families: ## doc/families.md again, from the families' tables
	@tools/families_page > $(BUILD)/families && mv $(BUILD)/families doc/families.md

api: ## doc/api.md again, from include/headlight.h
	@tools/api_page > $(BUILD)/api && mv $(BUILD)/api doc/api.md

check-dist: ## the tarball: unpacked, built, installed and pip-installed, without git and network
	@HEADLIGHT_TEST_TIMEOUT=3000 tools/run_tests --logs $(BUILD)/tests/logs $(TALLY) tests/ship/dist.sh

check-deb: ## the Debian packages: built, and looked at by lintian
	@tools/deps deb
	@HEADLIGHT_TEST_TIMEOUT=3000 tools/run_tests --logs $(BUILD)/tests/logs $(TALLY) tests/ship/deb.sh

check-wheel: ## the wheel and the sdist: auditwheel, and in a bare Debian and Ubuntu; what needs root or PyPI is skipped where it is missing
	@HEADLIGHT_TEST_TIMEOUT=3000 tools/run_tests --logs $(BUILD)/tests/logs $(TALLY) tests/ship/wheel.sh

check-fresh: ## root only: the README's commands and the packages, each in a new Debian 12
	@tools/deps fresh
	@tools/check_fresh $(BUILD)/fresh

.PHONY: clean help version
version: ## print the number of the release
	@echo '$(VERSION)'

clean: ## remove everything that was built
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
