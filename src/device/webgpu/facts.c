/* facts.c - what WebGPU does not tell: a GPU's memory and its number of compute units.
 *
 * Asks the Vulkan loader, which wgpu has opened already, and matches its devices by vendor, device
 * and name. The few structs are declared here as the Vulkan 1.1 specification lays them out, so
 * that no Vulkan headers are needed. All of it is optional: what cannot be found stays 0, "not
 * known".
 */
#include "device/webgpu/webgpu.h"

#include <dlfcn.h>
#include <string.h>

#ifdef __linux__

enum {
    APPLICATION_INFO = 0,
    INSTANCE_CREATE_INFO = 1,
    PROPERTIES_2 = 1000059001,
    MEMORY_PROPERTIES_2 = 1000059006,
    MEMORY_BUDGET = 1000237000,   /* VK_EXT_memory_budget */
    SM_BUILTINS_NV = 1000154001,  /* VK_NV_shader_sm_builtins */
    SHADER_CORE_AMD = 1000185000, /* VK_AMD_shader_core_properties */
    HEAP_MAX = 16,
    TYPE_MAX = 32,
    HEAP_DEVICE_LOCAL = 1
};

typedef struct vulkan_application {
    int32_t type;
    const void *next;
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version, api;
} vulkan_application;

typedef struct vulkan_create {
    int32_t type;
    const void *next;
    uint32_t flags;
    const vulkan_application *application;
    uint32_t n_layer;
    const char *const *layers;
    uint32_t n_extension;
    const char *const *extensions;
} vulkan_create;

typedef struct vulkan_sm_builtins {
    int32_t type;
    void *next;
    uint32_t count, warps;
} vulkan_sm_builtins;

typedef struct vulkan_shader_core {
    int32_t type;
    void *next;
    uint32_t engines, arrays_per_engine, units_per_array, rest[11];
} vulkan_shader_core;

typedef struct vulkan_properties {
    int32_t type;
    void *next;
    uint32_t api, driver, vendor, device, device_type;
    char name[256];
    uint64_t rest[128]; /* pipeline cache id, limits, sparse properties: 548 bytes */
} vulkan_properties;

typedef struct vulkan_budget {
    int32_t type;
    void *next;
    uint64_t budget[HEAP_MAX], usage[HEAP_MAX];
} vulkan_budget;

typedef struct vulkan_memory {
    int32_t type;
    void *next;
    uint32_t n_type;
    struct {
        uint32_t flags, heap;
    } types[TYPE_MAX];
    uint32_t n_heap;
    struct {
        uint64_t size;
        uint32_t flags;
    } heaps[HEAP_MAX];
} vulkan_memory;

typedef struct vulkan {
    int32_t (*CreateInstance)(const vulkan_create *desc, const void *allocator, void **instance);
    void (*DestroyInstance)(void *instance, const void *allocator);
    int32_t (*EnumeratePhysicalDevices)(void *instance, uint32_t *count, void **devices);
    void (*GetPhysicalDeviceProperties2)(void *which, vulkan_properties *properties);
    void (*GetPhysicalDeviceMemoryProperties2)(void *which, vulkan_memory *memory);
} vulkan;

static bool find_functions(vulkan *v) {
    void *library =
        dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL); /* stays open, as wgpu keeps it */
    if (!library) return false;
    bool all = true;
#define X(name)                                     \
    do {                                            \
        void *address = dlsym(library, "vk" #name); \
        all &= address != NULL;                     \
        memcpy(&v->name, &address, sizeof address); \
    } while (0);
    X(CreateInstance)
    X(DestroyInstance)
    X(EnumeratePhysicalDevices)
    X(GetPhysicalDeviceProperties2)
    X(GetPhysicalDeviceMemoryProperties2)
#undef X
    return all;
}

/* Bytes that this process may expect: the budget of the largest heap that is the device's own, or
 * its size. */
static uint64_t memory_of(const vulkan *v, void *which) {
    vulkan_budget budget = {.type = MEMORY_BUDGET};
    vulkan_memory memory = {.type = MEMORY_PROPERTIES_2, .next = &budget};
    v->GetPhysicalDeviceMemoryProperties2(which, &memory);
    uint64_t best = 0, result = 0;
    for (uint32_t i = 0; i < memory.n_heap && i < HEAP_MAX; i++) {
        if (!(memory.heaps[i].flags & HEAP_DEVICE_LOCAL) || memory.heaps[i].size <= best) continue;
        best = memory.heaps[i].size;
        result = budget.budget[i] && budget.budget[i] < best ? budget.budget[i] : best;
    }
    return result;
}

void webgpu_facts(webgpu_adapter *adapters, uint32_t n) {
    vulkan v;
    if (!n || !find_functions(&v)) return;
    vulkan_application application = {
        .type = APPLICATION_INFO, .name = "beryl", .api = UINT32_C(1) << 22 | 1 << 12};
    vulkan_create create = {.type = INSTANCE_CREATE_INFO, .application = &application};
    void *instance = NULL;
    if (v.CreateInstance(&create, NULL, &instance)) return;
    enum { DEVICE_MAX = 32 };
    void *devices[DEVICE_MAX];
    uint32_t count = DEVICE_MAX;
    bool used[DEVICE_MAX] = {false};
    if (v.EnumeratePhysicalDevices(instance, &count, devices) < 0) count = 0;
    for (uint32_t i = 0; i < n; i++) {
        device_caps *caps = &adapters[i].caps;
        if (caps->kind == DEVICE_SOFTWARE) continue; /* tells of a made-up heap */
        for (uint32_t k = 0; k < count; k++) {
            vulkan_sm_builtins nvidia = {.type = SM_BUILTINS_NV};
            vulkan_shader_core amd = {.type = SHADER_CORE_AMD, .next = &nvidia};
            vulkan_properties properties = {.type = PROPERTIES_2, .next = &amd};
            if (used[k]) continue;
            v.GetPhysicalDeviceProperties2(devices[k], &properties);
            properties.name[sizeof properties.name - 1] = 0;
            if (properties.vendor != caps->vendor ||
                strncmp(properties.name, caps->name, sizeof caps->name - 1))
                continue;
            used[k] = true;
            caps->memory = memory_of(&v, devices[k]);
            caps->compute_units = nvidia.count
                                      ? nvidia.count
                                      : amd.engines * amd.arrays_per_engine * amd.units_per_array;
            break;
        }
    }
    v.DestroyInstance(instance, NULL);
}

#else

void webgpu_facts(webgpu_adapter *adapters, uint32_t n) {
    (void)adapters, (void)n;
}

#endif
