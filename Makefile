# Short names for the CMake presets. Each target installs what it lacks (Debian packages) before it builds.

JOBS ?= $(shell nproc)
# A test that keeps files on the disk waits for it most of the time; one that keeps them in memory hardly waits.
TESTS_AT_ONCE = $$((2 * $(JOBS) + 2))
TESTS_AT_ONCE_IN_MEMORY = $$(($(JOBS) + 1))
# Options of CMake for the preset dev and for the builds with its flags. Those of .ci/run do not stay for the next build.
DEV_OPTIONS ?= -UCMAKE_UNITY_BUILD -UTIDEMARK_TESTS_SHARE_PROCESSES
export DEV_OPTIONS
STATES ?= 1000000
SECONDS_EACH ?= 30

.PHONY: help demo demo-ranks test test-torch2 test-interop test-python test-pythons kill-python fuzz-python bench-python bench-commit-tail bench-deltas bench-peers bench-gpu wheel test-wheel test-pip-install bench bench-growth crash-long crash-real partition client-caches faults-long clang-torch asan asan-core tsan fuzz fuzz-short install-test clean test-python-jax test-python-tensorflow test-python-torch test-frameworks

help:
	@echo "make demo          build the example trainer, kill it in the middle of saves, prove that it resumes exactly; evaluate it"
	@echo "make demo-ranks    the same with 4 processes; kills some of them, and goes on with 2 and 3"
	@echo "make test          build everything and run the whole suite"
	@echo "make test-torch2   build and test the LibTorch edge against a torch 2.x wheel from PyPI"
	@echo "make test-interop  hold export, import, statistics and report against Python's safetensors, numpy, Prometheus client, and Chromium"
	@echo "make test-python   build the Python package and run its tests; needs PyPI once"
	@echo "make test-pythons  run those tests that need no PyTorch in each Python from 3.10 on that is here; VERSIONS=\"10 13\"; needs PyPI once"
	@echo "make kill-python   kill two Python examples at 50 random moments each; KILLS=N, SEED=N"
	@echo "make fuzz-python   fuzz the Python package's reading of values, under Atheris, for SECONDS_EACH=30; needs PyPI once"
	@echo "make bench-python  measure the Python package against the C++ library, in some minutes; BENCH=\"--only NAME ...\""
	@echo "make bench-commit-tail  measure the end of a save of 8 processes against DCP's; needs PyPI once, for 5.6 GB"
	@echo "make bench-deltas  measure what deltas against an earlier step would save, in some minutes; needs PyPI once, for 5.6 GB"
	@echo "make bench-peers   measure it against eleven other ways to save a checkpoint, in 20 minutes or more; needs PyPI once, for 6.5 GB"
	@echo "make bench-gpu     check and measure the wheel with tensors on an NVIDIA GPU, in 8 minutes; WHEEL=FILE, OUT=FOLDER, PYTHON=, BENCH="
	@echo "make wheel         make one self-contained wheel of the Python package in build/wheel, and test what is in it"
	@echo "make test-wheel    the same; test it in every Python that is here, beside frameworks, with the examples; needs PyPI once, for 7.6 GB"
	@echo "make test-pip-install  install the Python package by pip install . from a clean copy of the tree, and use it; needs PyPI"
	@echo "make test-python-jax   run the tests of its integrations of JAX, Orbax and Keras; needs PyPI once"
	@echo "make test-python-tensorflow  run the tests of its integration of Keras with TensorFlow; needs PyPI once, for 1.6 GB"
	@echo "make test-python-torch  the same with torch 2.x, and the integrations of Lightning and Hugging Face; needs PyPI once, for 5.6 GB"
	@echo "make test-frameworks  run the own tests of Lightning, Keras and Orbax on our classes; CHECKOUTS=\"lightning=FOLDER ...\""
	@echo "make bench         measure against the hardware and LibTorch, in some minutes; BENCH=\"--only NAME --json FILE ...\""
	@echo "make bench-growth  measure how times and memory grow with bytes, entries, steps and ranks, and plot it; in some minutes"
	@echo "make crash-long    look at a million states that a crash could leave, in an hour or two; STATES=N: at so many"
	@echo "make crash-real    power cuts on loop-mounted ext4 and xfs, a disk that fills up, 1,000 kills; as root, in some minutes"
	@echo "make partition     two ranks in network namespaces that lose the network between them; as root, in a minute"
	@echo "make client-caches  ranks, workers and trainers on mounts whose caches show the store as it was; as root, in a minute"
	@echo "make faults-long   every fault of every call, every bit and byte of a store, of which the suite draws some; SEED=N"
	@echo "make clang-torch   compile what includes LibTorch with clang; its headers need another standard library there"
	@echo "make asan          everything but LibTorch's with clang and its thread-safety analysis; the tests under ASan and UBSan"
	@echo "make asan-core     the same without checkpoint-inspect"
	@echo "make tsan          the core's tests under ThreadSanitizer"
	@echo "make fuzz          fuzz what reads bytes from the disk, under clang's libFuzzer, for SECONDS_EACH=30 each target"
	@echo "make fuzz-short    5 seconds of that for each target but the two of checkpoint-inspect"
	@echo "make install-test  install into a temporary prefix and build a stranger's project against it"
	@echo "make clean         remove build/"
	@echo "JOBS=N             compile and test with N processes (default: one for each core)"

# DEMO_PRESET=dev takes the build of make test, where there is one.
DEMO_PRESET ?= release
DEMO_BUILD := build/$(DEMO_PRESET)

demo:
	@tools/setup demo
	cmake --preset $(DEMO_PRESET) $(if $(filter dev,$(DEMO_PRESET)),$(DEV_OPTIONS)) $(if $(filter release,$(DEMO_PRESET)),-DTIDEMARK_TESTS=OFF)
	cmake --build --preset $(DEMO_PRESET) -j $(JOBS) --target char_lm char_lm_evaluate checkpoint-inspect compare-steps
	examples/char_lm/demo --trainer $(DEMO_BUILD)/examples/char_lm/char_lm \
	  --evaluate $(DEMO_BUILD)/examples/char_lm/char_lm_evaluate \
	  --inspect $(DEMO_BUILD)/tools/checkpoint-inspect --compare $(DEMO_BUILD)/examples/compare_steps/compare-steps

demo-ranks:
	@tools/setup demo
	cmake --preset $(DEMO_PRESET) $(if $(filter dev,$(DEMO_PRESET)),$(DEV_OPTIONS)) $(if $(filter release,$(DEMO_PRESET)),-DTIDEMARK_TESTS=OFF)
	cmake --build --preset $(DEMO_PRESET) -j $(JOBS) --target char_lm_ranks char_lm_evaluate checkpoint-inspect compare-steps
	examples/char_lm/demo_ranks --trainer $(DEMO_BUILD)/examples/char_lm/char_lm_ranks \
	  --evaluate $(DEMO_BUILD)/examples/char_lm/char_lm_evaluate \
	  --inspect $(DEMO_BUILD)/tools/checkpoint-inspect --compare $(DEMO_BUILD)/examples/compare_steps/compare-steps

test:
	@tools/setup test
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev -j $(TESTS_AT_ONCE)

crash-long:
	@tools/setup test
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS) --target crash_scenarios_test
	JOBS=$(JOBS) STATES=$(STATES) tests/crash/long.sh build/dev

test-torch2:
	@tools/setup torch2
	JOBS=$(JOBS) tests/torch2.sh || [ $$? -eq 77 ] # the package index is out of reach, as its last line says

test-interop:
	@tools/setup interop
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS) --target checkpoint-inspect inspect_make_run make_test_store
	tests/interop.sh build/dev || [ $$? -eq 77 ] # as above

test-python:
	@tools/setup python
	JOBS=$(JOBS) tests/python.sh || [ $$? -eq 77 ] # as above

# VERSIONS: of Python 3, instead of "10 11 12 13 14".
test-pythons:
	@tools/setup python
	JOBS=$(JOBS) tests/pythons.sh $(VERSIONS) || [ $$? -eq 77 ] # as above

# KILLS=N and SEED=N: something else than 50, and a run once more.
kill-python:
	@tools/setup python
	TIDEMARK_KILLS=$(or $(KILLS),50) $(if $(SEED),TIDEMARK_SEED=$(SEED)) JOBS=$(JOBS) \
	  tests/python.sh -s tests/python/trainer/example_test.py || [ $$? -eq 77 ] # as above

# Under Atheris, a package of 35 MB. Stops at the first finding.
fuzz-python:
	@tools/setup python
	JOBS=$(JOBS) tests/python.sh --fuzz $(SECONDS_EACH) || [ $$? -eq 77 ] # as above

# The build and the Python of test-python. BENCH: options of python/bench/bench.py.
bench-python:
	@tools/setup python
	JOBS=$(JOBS) tests/python.sh --bench --dir build $(BENCH) || [ $$? -eq 77 ] # as above

# With the torch of test-python-torch. BENCH: options of python/bench/commit_tail.py.
bench-commit-tail:
	@tools/setup python
	JOBS=$(JOBS) tests/python_torch.sh --program python/bench/commit_tail.py --dir build $(BENCH) || [ $$? -eq 77 ] # as above

# The same. BENCH: options of python/bench/deltas.py.
bench-deltas:
	@tools/setup python
	JOBS=$(JOBS) tests/python_torch.sh --program python/bench/deltas.py --dir build $(BENCH) || [ $$? -eq 77 ] # as above

# Tidemark and the other libraries, each with the same state. BENCH: options of python/bench/peers.py.
bench-peers:
	@tools/setup python
	JOBS=$(JOBS) tests/peers.sh --dir build --json build/peers.json --plot build/peers.png $(BENCH) || [ $$? -eq 77 ] # as above

# Takes a Python with PyTorch, and nothing of Debian's packages. BENCH: options of python/bench/devices.py.
bench-gpu:
	OUT="$(OUT)" PYTHON="$(PYTHON)" WORK="$(WORK)" python/bench/gpu.sh $(WHEEL) $(BENCH)

# From empty caches half an hour of one core. 77: as above.
wheel:
	@tools/setup wheel
	JOBS=$(JOBS) tools/wheel && tests/wheel.sh --contents build/wheel/*.whl || [ $$? -eq 77 ]

test-wheel:
	@tools/setup wheel
	JOBS=$(JOBS) tools/wheel && tests/wheel.sh build/wheel/*.whl || [ $$? -eq 77 ]

test-pip-install:
	@tools/setup python
	JOBS=$(JOBS) tests/pip_install.sh || [ $$? -eq 77 ] # as above

test-python-jax:
	@tools/setup python
	JOBS=$(JOBS) tests/python_jax.sh tests/python_jax || [ $$? -eq 77 ] # as above

test-python-tensorflow:
	@tools/setup python
	KERAS_BACKEND=tensorflow JOBS=$(JOBS) tests/python_jax.sh || [ $$? -eq 77 ] # as above

test-python-torch:
	@tools/setup python
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS) --target char_lm checkpoint-inspect compare-steps
	JOBS=$(JOBS) tests/python_torch.sh || [ $$? -eq 77 ] # as above

# CHECKOUTS: "lightning=FOLDER keras=FOLDER orbax=FOLDER", of which one is enough.
test-frameworks:
	@tools/setup python
	JOBS=$(JOBS) tests/frameworks.sh $(CHECKOUTS) || [ $$? -eq 77 ] # as above

bench:
	@tools/setup bench
	cmake --preset release -DTIDEMARK_TESTS=OFF
	cmake --build --preset release -j $(JOBS) --target tidemark-bench
	build/release/bench/tidemark-bench --dir build $(BENCH)

bench-growth:
	@tools/setup bench-growth
	cmake --preset release -DTIDEMARK_TESTS=OFF
	cmake --build --preset release -j $(JOBS) --target tidemark-bench
	build/release/bench/tidemark-bench --growth --dir build --json build/growth.json $(BENCH)
	/usr/bin/python3 bench/plot_growth.py build/growth.json build/growth.png

# CUTS=N, FILLS=N, KILLS=N and SEED=N: something else than the whole, and a run once more.
crash-real:
	@tools/setup test
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS) --target real_power_cut_test real_full_disk_test real_kill_loop_test
	CUTS="$(CUTS)" FILLS="$(FILLS)" KILLS="$(KILLS)" SEED="$(SEED)" tests/real/crash_real.sh build/dev/tests/real

# The build and the Python of test-python.
partition:
	@tools/setup python
	JOBS=$(JOBS) tests/python.sh --program tests/real/partition.py || [ $$? -eq 77 ] # as above

client-caches:
	@tools/setup client-caches
	JOBS=$(JOBS) tests/python.sh --program tests/real/client_caches.py || [ $$? -eq 77 ] # as above

faults-long:
	@tools/setup test
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS) --target $$(tests/faults_long.sh --targets)
	JOBS=$(JOBS) SEED="$(SEED)" tests/faults_long.sh build/dev

# A sanitizer's map of the memory knows fewer places than newer kernels put a program at; setarch -R turns that off, where
# it is allowed.
UNSHUFFLED = $$(setarch -R true 2>/dev/null && echo setarch -R)

asan: ASAN_TOOLS := ON
asan-core: ASAN_TOOLS := OFF
asan asan-core:
	@tools/setup clang
	cmake --preset asan -DTIDEMARK_TOOLS=$(ASAN_TOOLS)
	cmake --build --preset asan -j $(JOBS)
	$(UNSHUFFLED) tests/in_memory ctest --preset asan -j $(TESTS_AT_ONCE_IN_MEMORY)

clang-torch:
	@tools/setup clang
	JOBS=$(JOBS) tools/clang_torch

tsan:
	@tools/setup test
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	$(UNSHUFFLED) tests/in_memory ctest --preset tsan -j $(TESTS_AT_ONCE_IN_MEMORY)

FUZZ_TARGETS := $(notdir $(wildcard fuzz/corpus/*))
FUZZ_TOOLS := ON
# What asan-core has built.
fuzz-short: FUZZ_TARGETS := $(filter-out inspect safetensors,$(FUZZ_TARGETS))
fuzz-short: FUZZ_TOOLS := OFF
fuzz-short: SECONDS_EACH := 5

fuzz fuzz-short:
	@tools/setup clang
	cmake --preset asan -DTIDEMARK_TOOLS=$(FUZZ_TOOLS)
	cmake --build --preset asan -j $(JOBS) --target $(addprefix fuzz_,$(FUZZ_TARGETS))
	$(UNSHUFFLED) fuzz/run --programs build/asan/fuzz --work build/findings --seconds $(SECONDS_EACH) --jobs $(JOBS) $(FUZZ_TARGETS)

install-test:
	@tools/setup test
	cmake --preset dev $(DEV_OPTIONS)
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev -R '^install_'

clean:
	rm -rf build
