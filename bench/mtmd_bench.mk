# mtmd_bench.mk - builds mtmd_bench with what llama.cpp's towers of Gemma 4 need of ggml for one CUDA architecture: quantised
# products and attention of other heads are left out, and end the program if anything asks for them.
#
#   make -f bench/mtmd_bench.mk -j18 LLAMA=llama_cpp_python-0.3.36/vendor/llama.cpp CUDA=/usr/local/cuda OUT=/tmp/mtmd
LLAMA ?= vendor/llama.cpp
CUDA ?= /usr/local/cuda
OUT ?= build/mtmd
SM ?= 90
GGML := $(LLAMA)/ggml/src
KERNELS := $(GGML)/ggml-cuda
INSTANCES := $(KERNELS)/template-instances
TYPES := F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 BF16
PAIRS := $(foreach k,$(TYPES),$(foreach v,$(TYPES),$(k)_$(v)))
FLAGS := -I$(LLAMA)/ggml/include -I$(GGML) -I$(GGML)/ggml-cpu -I$(GGML)/ggml-cuda -I$(LLAMA)/include -I$(LLAMA)/tools/mtmd -I$(OUT) \
    -D_GNU_SOURCE -D_XOPEN_SOURCE=600 -DNDEBUG -DGGML_USE_CPU -DGGML_USE_CUDA -DGGML_USE_CPU_REPACK -DGGML_USE_LLAMAFILE \
    -DGGML_SCHED_MAX_COPIES=4 -DGGML_CUDA_USE_GRAPHS -DGGML_CUDA_PEER_MAX_BATCH_SIZE=128 -DGGML_VERSION='"0"' -DGGML_COMMIT='"0"' \
    -DGGML_CUDA_FA_F16_F16=1 $(patsubst %,-DGGML_CUDA_FA_%=0,$(filter-out F16_F16,$(PAIRS)))
CPU := -O3 -march=x86-64-v3 -fopenmp -DGGML_USE_OPENMP -w
C := $(wildcard $(GGML)/*.c $(GGML)/ggml-cpu/*.c $(GGML)/ggml-cpu/arch/x86/*.c)
CXX_OF := $(LLAMA)/tools/mtmd/clip.cpp $(LLAMA)/tools/mtmd/mtmd-audio.cpp \
    $(LLAMA)/tools/mtmd/models/gemma4v.cpp $(LLAMA)/tools/mtmd/models/gemma4a.cpp $(wildcard $(GGML)/*.cpp $(GGML)/ggml-cpu/*.cpp \
    $(foreach part,amx llamafile tiled arch/x86,$(GGML)/ggml-cpu/$(part)/*.cpp))
SLOW := $(patsubst %,$(KERNELS)/%.cu,mmvq mmvf fattn-tile ggml-cuda cpy convert binbcast getrows)
CU := $(wildcard $(INSTANCES)/fattn-mma-*-ncols2_1.cu $(INSTANCES)/fattn-tile-*64-dv64.cu $(INSTANCES)/fattn-vec-*-f16-f16.cu \
    $(INSTANCES)/mmf-*.cu) $(SLOW) $(filter-out $(SLOW),$(wildcard $(KERNELS)/*.cu))
OBJECTS := $(patsubst $(LLAMA)/%,$(OUT)/%.o,$(CU) $(CXX_OF) $(C)) $(OUT)/mtmd_bench.o

$(OUT)/mtmd_bench: $(OBJECTS)
	g++ -o $@ $^ -no-pie -fopenmp -Wl,--unresolved-symbols=ignore-all -Wl,-z,lazy -L$(CUDA)/lib64 -L$(CUDA)/lib64/stubs -lcublas -lcudart -lcuda -lpthread -ldl
$(OBJECTS): $(OUT)/ggml-version.h
$(OUT)/ggml-version.h:
	@mkdir -p $(@D) && touch $@
$(OUT)/%.cu.o: $(LLAMA)/%.cu
	@mkdir -p $(@D)
	$(CUDA)/bin/nvcc -O3 -std=c++17 -gencode arch=compute_$(SM),code=sm_$(SM) -use_fast_math -extended-lambda $(FLAGS) -w -c -o $@ $<
$(OUT)/%.cpp.o: $(LLAMA)/%.cpp
	@mkdir -p $(@D)
	g++ -std=c++17 $(CPU) $(FLAGS) -c -o $@ $<
$(OUT)/%.c.o: $(LLAMA)/%.c
	@mkdir -p $(@D)
	gcc -std=gnu11 $(CPU) $(FLAGS) -c -o $@ $<
$(OUT)/mtmd_bench.o: $(dir $(lastword $(MAKEFILE_LIST)))mtmd_bench.cpp
	g++ -std=c++17 $(CPU) $(FLAGS) -c -o $@ $<
