/* wgpu.h - what Beryl uses of wgpu-native 29, declared here, so that nothing of it is needed to
 * build. Names, numbers and layouts are those of its webgpu.h and wgpu.h (tools/check-wgpu compares
 * them); enumerations have only the values that are used.
 *
 * webgpu.h: Copyright 2019-2023 WebGPU-Native developers, BSD-3-Clause. wgpu.h: as wgpu-native.
 */
#ifndef DEVICE_WEBGPU_WGPU_H
#define DEVICE_WEBGPU_WGPU_H

#include <stddef.h>
#include <stdint.h>

#define WGPU_QUERY_SET_INDEX_UNDEFINED (UINT32_MAX)
#define WGPU_STRLEN (SIZE_MAX)

/* ---- handles and numbers --------------------------------------------------------------------- */

typedef struct WGPUAdapterImpl *WGPUAdapter;
typedef struct WGPUBindGroupImpl *WGPUBindGroup;
typedef struct WGPUBindGroupLayoutImpl *WGPUBindGroupLayout;
typedef struct WGPUBufferImpl *WGPUBuffer;
typedef struct WGPUCommandBufferImpl *WGPUCommandBuffer;
typedef struct WGPUCommandEncoderImpl *WGPUCommandEncoder;
typedef struct WGPUComputePassEncoderImpl *WGPUComputePassEncoder;
typedef struct WGPUComputePipelineImpl *WGPUComputePipeline;
typedef struct WGPUDeviceImpl *WGPUDevice;
typedef struct WGPUInstanceImpl *WGPUInstance;
typedef struct WGPUPipelineLayoutImpl *WGPUPipelineLayout;
typedef struct WGPUQuerySetImpl *WGPUQuerySet;
typedef struct WGPUQueueImpl *WGPUQueue;
typedef struct WGPUSamplerImpl *WGPUSampler;
typedef struct WGPUShaderModuleImpl *WGPUShaderModule;
typedef struct WGPUTextureViewImpl *WGPUTextureView;

typedef uint64_t WGPUFlags;
typedef uint32_t WGPUBool;
typedef uint32_t WGPUBackendType;
typedef uint32_t WGPUDeviceLostReason;
typedef uint32_t WGPUInstanceFeatureName;
typedef uint32_t WGPUQueueWorkDoneStatus;
typedef uint32_t WGPUSamplerBindingType;
typedef uint32_t WGPUStatus;
typedef uint32_t WGPUStorageTextureAccess;
typedef uint32_t WGPUTextureFormat;
typedef uint32_t WGPUTextureSampleType;
typedef uint32_t WGPUTextureViewDimension;
typedef WGPUFlags WGPUBufferUsage;
typedef WGPUFlags WGPUMapMode;
typedef WGPUFlags WGPUShaderStage;
typedef WGPUFlags WGPUInstanceBackend;
typedef WGPUFlags WGPUInstanceFlag;
typedef uint32_t WGPUDx12Compiler;
typedef uint32_t WGPUGles3MinorVersion;
typedef uint32_t WGPUDxcMaxShaderModel;
typedef uint32_t WGPUGLFenceBehaviour;
typedef uint32_t WGPUDx12SwapchainKind;
typedef uint32_t WGPUNativeDisplayHandleType;
typedef uint64_t WGPUSubmissionIndex;
typedef WGPUFlags WGPUShaderRuntimeChecks;

typedef enum WGPUAdapterType {
    WGPUAdapterType_DiscreteGPU = 0x00000001,
    WGPUAdapterType_CPU = 0x00000003
} WGPUAdapterType;
typedef enum WGPUBufferBindingType {
    WGPUBufferBindingType_Uniform = 0x00000002,
    WGPUBufferBindingType_Storage = 0x00000003,
    WGPUBufferBindingType_ReadOnlyStorage = 0x00000004
} WGPUBufferBindingType;
typedef enum WGPUCallbackMode { WGPUCallbackMode_AllowProcessEvents = 0x00000002 } WGPUCallbackMode;
typedef enum WGPUErrorType { WGPUErrorType_OutOfMemory = 0x00000003 } WGPUErrorType;
typedef enum WGPUFeatureName {
    WGPUFeatureName_TimestampQuery = 0x00000009,
    WGPUFeatureName_ShaderF16 = 0x0000000B
} WGPUFeatureName;
typedef enum WGPUMapAsyncStatus { WGPUMapAsyncStatus_Success = 0x00000001 } WGPUMapAsyncStatus;
typedef enum WGPUQueryType { WGPUQueryType_Timestamp = 0x00000002 } WGPUQueryType;
typedef enum WGPURequestDeviceStatus {
    WGPURequestDeviceStatus_Success = 0x00000001
} WGPURequestDeviceStatus;
typedef enum WGPUSType { WGPUSType_ShaderSourceWGSL = 0x00000002 } WGPUSType;
typedef enum WGPUNativeSType { WGPUSType_InstanceExtras = 0x00030004 } WGPUNativeSType;
typedef enum WGPUNativeFeature {
    WGPUNativeFeature_Subgroup = 0x00030021,
    WGPUNativeFeature_TimestampQueryInsidePasses = 0x00030025
} WGPUNativeFeature;

static const WGPUBufferUsage WGPUBufferUsage_MapRead = 0x0000000000000001;
static const WGPUBufferUsage WGPUBufferUsage_MapWrite = 0x0000000000000002;
static const WGPUBufferUsage WGPUBufferUsage_CopySrc = 0x0000000000000004;
static const WGPUBufferUsage WGPUBufferUsage_CopyDst = 0x0000000000000008;
static const WGPUBufferUsage WGPUBufferUsage_Uniform = 0x0000000000000040;
static const WGPUBufferUsage WGPUBufferUsage_Storage = 0x0000000000000080;
static const WGPUBufferUsage WGPUBufferUsage_QueryResolve = 0x0000000000000200;
static const WGPUMapMode WGPUMapMode_Read = 0x0000000000000001;
static const WGPUMapMode WGPUMapMode_Write = 0x0000000000000002;
static const WGPUShaderStage WGPUShaderStage_Compute = 0x0000000000000004;
static const WGPUInstanceBackend WGPUInstanceBackend_Vulkan = 1 << 0;
static const WGPUInstanceBackend WGPUInstanceBackend_Metal = 1 << 2;

/* ---- structures and callbacks ---------------------------------------------------------------- */

typedef struct WGPUStringView {
    const char *data;
    size_t length;
} WGPUStringView;

typedef struct WGPUChainedStruct {
    struct WGPUChainedStruct *next;
    WGPUSType sType;
} WGPUChainedStruct;

typedef void (*WGPUBufferMapCallback)(WGPUMapAsyncStatus status, WGPUStringView message,
                                      void *userdata1, void *userdata2);
typedef void (*WGPUDeviceLostCallback)(const WGPUDevice *device, WGPUDeviceLostReason reason,
                                       WGPUStringView message, void *userdata1, void *userdata2);
typedef void (*WGPUQueueWorkDoneCallback)(WGPUQueueWorkDoneStatus status, WGPUStringView message,
                                          void *userdata1, void *userdata2);
typedef void (*WGPURequestDeviceCallback)(WGPURequestDeviceStatus status, WGPUDevice device,
                                          WGPUStringView message, void *userdata1, void *userdata2);
typedef void (*WGPUUncapturedErrorCallback)(const WGPUDevice *device, WGPUErrorType type,
                                            WGPUStringView message, void *userdata1,
                                            void *userdata2);

typedef struct WGPUBufferMapCallbackInfo {
    WGPUChainedStruct *nextInChain;
    WGPUCallbackMode mode;
    WGPUBufferMapCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUBufferMapCallbackInfo;

typedef struct WGPUDeviceLostCallbackInfo {
    WGPUChainedStruct *nextInChain;
    WGPUCallbackMode mode;
    WGPUDeviceLostCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUDeviceLostCallbackInfo;

typedef struct WGPUQueueWorkDoneCallbackInfo {
    WGPUChainedStruct *nextInChain;
    WGPUCallbackMode mode;
    WGPUQueueWorkDoneCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUQueueWorkDoneCallbackInfo;

typedef struct WGPURequestDeviceCallbackInfo {
    WGPUChainedStruct *nextInChain;
    WGPUCallbackMode mode;
    WGPURequestDeviceCallback callback;
    void *userdata1;
    void *userdata2;
} WGPURequestDeviceCallbackInfo;

typedef struct WGPUUncapturedErrorCallbackInfo {
    WGPUChainedStruct *nextInChain;
    WGPUUncapturedErrorCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUUncapturedErrorCallbackInfo;

typedef struct WGPUAdapterInfo {
    WGPUChainedStruct *nextInChain;
    WGPUStringView vendor, architecture, device, description;
    WGPUBackendType backendType;
    WGPUAdapterType adapterType;
    uint32_t vendorID, deviceID, subgroupMinSize, subgroupMaxSize;
} WGPUAdapterInfo;

typedef struct WGPUBufferBindingLayout {
    WGPUChainedStruct *nextInChain;
    WGPUBufferBindingType type;
    WGPUBool hasDynamicOffset;
    uint64_t minBindingSize;
} WGPUBufferBindingLayout;

typedef struct WGPUBufferDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUBufferUsage usage;
    uint64_t size;
    WGPUBool mappedAtCreation;
} WGPUBufferDescriptor;

typedef struct WGPUCommandBufferDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
} WGPUCommandBufferDescriptor;

typedef struct WGPUCommandEncoderDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
} WGPUCommandEncoderDescriptor;

typedef struct WGPUConstantEntry {
    WGPUChainedStruct *nextInChain;
    WGPUStringView key;
    double value;
} WGPUConstantEntry;

typedef struct WGPUFuture {
    uint64_t id;
} WGPUFuture;

typedef struct WGPUInstanceLimits {
    WGPUChainedStruct *nextInChain;
    size_t timedWaitAnyMaxCount;
} WGPUInstanceLimits;

typedef struct WGPUPassTimestampWrites {
    WGPUChainedStruct *nextInChain;
    WGPUQuerySet querySet;
    uint32_t beginningOfPassWriteIndex, endOfPassWriteIndex;
} WGPUPassTimestampWrites;

typedef struct WGPUPipelineLayoutDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t bindGroupLayoutCount;
    const WGPUBindGroupLayout *bindGroupLayouts;
    uint32_t immediateSize;
} WGPUPipelineLayoutDescriptor;

typedef struct WGPUQuerySetDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUQueryType type;
    uint32_t count;
} WGPUQuerySetDescriptor;

typedef struct WGPUQueueDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
} WGPUQueueDescriptor;

typedef struct WGPUSamplerBindingLayout {
    WGPUChainedStruct *nextInChain;
    WGPUSamplerBindingType type;
} WGPUSamplerBindingLayout;

typedef struct WGPUShaderSourceWGSL {
    WGPUChainedStruct chain;
    WGPUStringView code;
} WGPUShaderSourceWGSL;

typedef struct WGPUStorageTextureBindingLayout {
    WGPUChainedStruct *nextInChain;
    WGPUStorageTextureAccess access;
    WGPUTextureFormat format;
    WGPUTextureViewDimension viewDimension;
} WGPUStorageTextureBindingLayout;

typedef struct WGPUTextureBindingLayout {
    WGPUChainedStruct *nextInChain;
    WGPUTextureSampleType sampleType;
    WGPUTextureViewDimension viewDimension;
    WGPUBool multisampled;
} WGPUTextureBindingLayout;

typedef struct WGPUBindGroupEntry {
    WGPUChainedStruct *nextInChain;
    uint32_t binding;
    WGPUBuffer buffer;
    uint64_t offset, size;
    WGPUSampler sampler;
    WGPUTextureView textureView;
} WGPUBindGroupEntry;

typedef struct WGPUBindGroupLayoutEntry {
    WGPUChainedStruct *nextInChain;
    uint32_t binding;
    WGPUShaderStage visibility;
    uint32_t bindingArraySize;
    WGPUBufferBindingLayout buffer;
    WGPUSamplerBindingLayout sampler;
    WGPUTextureBindingLayout texture;
    WGPUStorageTextureBindingLayout storageTexture;
} WGPUBindGroupLayoutEntry;

typedef struct WGPUComputePassDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    const WGPUPassTimestampWrites *timestampWrites;
} WGPUComputePassDescriptor;

typedef struct WGPUComputeState {
    WGPUChainedStruct *nextInChain;
    WGPUShaderModule module;
    WGPUStringView entryPoint;
    size_t constantCount;
    const WGPUConstantEntry *constants;
} WGPUComputeState;

typedef struct WGPUInstanceDescriptor {
    WGPUChainedStruct *nextInChain;
    size_t requiredFeatureCount;
    const WGPUInstanceFeatureName *requiredFeatures;
    const WGPUInstanceLimits *requiredLimits;
} WGPUInstanceDescriptor;

typedef struct WGPULimits {
    WGPUChainedStruct *nextInChain;
    uint32_t maxTextureDimension1D, maxTextureDimension2D, maxTextureDimension3D;
    uint32_t maxTextureArrayLayers, maxBindGroups, maxBindGroupsPlusVertexBuffers;
    uint32_t maxBindingsPerBindGroup, maxDynamicUniformBuffersPerPipelineLayout;
    uint32_t maxDynamicStorageBuffersPerPipelineLayout, maxSampledTexturesPerShaderStage;
    uint32_t maxSamplersPerShaderStage, maxStorageBuffersPerShaderStage;
    uint32_t maxStorageTexturesPerShaderStage, maxUniformBuffersPerShaderStage;
    uint64_t maxUniformBufferBindingSize, maxStorageBufferBindingSize;
    uint32_t minUniformBufferOffsetAlignment, minStorageBufferOffsetAlignment, maxVertexBuffers;
    uint64_t maxBufferSize;
    uint32_t maxVertexAttributes, maxVertexBufferArrayStride, maxInterStageShaderVariables;
    uint32_t maxColorAttachments, maxColorAttachmentBytesPerSample, maxComputeWorkgroupStorageSize;
    uint32_t maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX, maxComputeWorkgroupSizeY;
    uint32_t maxComputeWorkgroupSizeZ, maxComputeWorkgroupsPerDimension, maxImmediateSize;
} WGPULimits;

typedef struct WGPUShaderModuleDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
} WGPUShaderModuleDescriptor;

typedef struct WGPUBindGroupDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUBindGroupLayout layout;
    size_t entryCount;
    const WGPUBindGroupEntry *entries;
} WGPUBindGroupDescriptor;

typedef struct WGPUBindGroupLayoutDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t entryCount;
    const WGPUBindGroupLayoutEntry *entries;
} WGPUBindGroupLayoutDescriptor;

typedef struct WGPUComputePipelineDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUPipelineLayout layout;
    WGPUComputeState compute;
} WGPUComputePipelineDescriptor;

typedef struct WGPUDeviceDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t requiredFeatureCount;
    const WGPUFeatureName *requiredFeatures;
    const WGPULimits *requiredLimits;
    WGPUQueueDescriptor defaultQueue;
    WGPUDeviceLostCallbackInfo deviceLostCallbackInfo;
    WGPUUncapturedErrorCallbackInfo uncapturedErrorCallbackInfo;
} WGPUDeviceDescriptor;

typedef struct WGPUXlibDisplayHandle {
    void *display;
    int screen;
} WGPUXlibDisplayHandle;

typedef struct WGPUXcbDisplayHandle {
    void *connection;
    int screen;
} WGPUXcbDisplayHandle;

typedef struct WGPUWaylandDisplayHandle {
    void *display;
} WGPUWaylandDisplayHandle;

typedef struct WGPUNativeDisplayHandle {
    WGPUNativeDisplayHandleType type;
    union {
        WGPUXlibDisplayHandle xlib;
        WGPUXcbDisplayHandle xcb;
        WGPUWaylandDisplayHandle wayland;
    } data;
} WGPUNativeDisplayHandle;

typedef struct WGPUInstanceExtras {
    WGPUChainedStruct chain;
    WGPUInstanceBackend backends;
    WGPUInstanceFlag flags;
    WGPUDx12Compiler dx12ShaderCompiler;
    WGPUGles3MinorVersion gles3MinorVersion;
    WGPUGLFenceBehaviour glFenceBehaviour;
    WGPUStringView dxcPath;
    WGPUDxcMaxShaderModel dxcMaxShaderModel;
    WGPUDx12SwapchainKind dx12PresentationSystem;
    const uint8_t *budgetForDeviceCreation;
    const uint8_t *budgetForDeviceLoss;
    WGPUNativeDisplayHandle displayHandle;
} WGPUInstanceExtras;

typedef struct WGPUInstanceEnumerateAdapterOptions {
    const WGPUChainedStruct *nextInChain;
    WGPUInstanceBackend backends;
} WGPUInstanceEnumerateAdapterOptions;

/* ---- functions ------------------------------------------------------------------------------- */

typedef WGPUInstance (*WGPUProcCreateInstance)(const WGPUInstanceDescriptor *descriptor);
typedef WGPUStatus (*WGPUProcAdapterGetInfo)(WGPUAdapter adapter, WGPUAdapterInfo *info);
typedef WGPUStatus (*WGPUProcAdapterGetLimits)(WGPUAdapter adapter, WGPULimits *limits);
typedef WGPUBool (*WGPUProcAdapterHasFeature)(WGPUAdapter adapter, WGPUFeatureName feature);
typedef WGPUFuture (*WGPUProcAdapterRequestDevice)(WGPUAdapter adapter,
                                                   const WGPUDeviceDescriptor *descriptor,
                                                   WGPURequestDeviceCallbackInfo callbackInfo);
typedef void (*WGPUProcAdapterRelease)(WGPUAdapter adapter);
typedef void (*WGPUProcAdapterInfoFreeMembers)(WGPUAdapterInfo adapterInfo);
typedef void (*WGPUProcBindGroupRelease)(WGPUBindGroup bindGroup);
typedef void (*WGPUProcBindGroupLayoutRelease)(WGPUBindGroupLayout bindGroupLayout);
typedef void (*WGPUProcBufferDestroy)(WGPUBuffer buffer);
typedef const void *(*WGPUProcBufferGetConstMappedRange)(WGPUBuffer buffer, size_t offset,
                                                         size_t size);
typedef void *(*WGPUProcBufferGetMappedRange)(WGPUBuffer buffer, size_t offset, size_t size);
typedef WGPUFuture (*WGPUProcBufferMapAsync)(WGPUBuffer buffer, WGPUMapMode mode, size_t offset,
                                             size_t size, WGPUBufferMapCallbackInfo callbackInfo);
typedef void (*WGPUProcBufferUnmap)(WGPUBuffer buffer);
typedef void (*WGPUProcBufferRelease)(WGPUBuffer buffer);
typedef void (*WGPUProcCommandBufferRelease)(WGPUCommandBuffer commandBuffer);
typedef WGPUComputePassEncoder (*WGPUProcCommandEncoderBeginComputePass)(
    WGPUCommandEncoder commandEncoder, const WGPUComputePassDescriptor *descriptor);
typedef void (*WGPUProcCommandEncoderClearBuffer)(WGPUCommandEncoder commandEncoder,
                                                  WGPUBuffer buffer, uint64_t offset,
                                                  uint64_t size);
typedef void (*WGPUProcCommandEncoderCopyBufferToBuffer)(WGPUCommandEncoder commandEncoder,
                                                         WGPUBuffer source, uint64_t sourceOffset,
                                                         WGPUBuffer destination,
                                                         uint64_t destinationOffset, uint64_t size);
typedef WGPUCommandBuffer (*WGPUProcCommandEncoderFinish)(
    WGPUCommandEncoder commandEncoder, const WGPUCommandBufferDescriptor *descriptor);
typedef void (*WGPUProcCommandEncoderResolveQuerySet)(WGPUCommandEncoder commandEncoder,
                                                      WGPUQuerySet querySet, uint32_t firstQuery,
                                                      uint32_t queryCount, WGPUBuffer destination,
                                                      uint64_t destinationOffset);
typedef void (*WGPUProcCommandEncoderRelease)(WGPUCommandEncoder commandEncoder);
typedef void (*WGPUProcComputePassEncoderDispatchWorkgroups)(
    WGPUComputePassEncoder computePassEncoder, uint32_t workgroupCountX, uint32_t workgroupCountY,
    uint32_t workgroupCountZ);
typedef void (*WGPUProcComputePassEncoderEnd)(WGPUComputePassEncoder computePassEncoder);
typedef void (*WGPUProcComputePassEncoderSetBindGroup)(WGPUComputePassEncoder computePassEncoder,
                                                       uint32_t groupIndex, WGPUBindGroup group,
                                                       size_t dynamicOffsetCount,
                                                       const uint32_t *dynamicOffsets);
typedef void (*WGPUProcComputePassEncoderSetPipeline)(WGPUComputePassEncoder computePassEncoder,
                                                      WGPUComputePipeline pipeline);
typedef void (*WGPUProcComputePassEncoderRelease)(WGPUComputePassEncoder computePassEncoder);
typedef void (*WGPUProcComputePipelineRelease)(WGPUComputePipeline computePipeline);
typedef WGPUBindGroup (*WGPUProcDeviceCreateBindGroup)(WGPUDevice device,
                                                       const WGPUBindGroupDescriptor *descriptor);
typedef WGPUBindGroupLayout (*WGPUProcDeviceCreateBindGroupLayout)(
    WGPUDevice device, const WGPUBindGroupLayoutDescriptor *descriptor);
typedef WGPUBuffer (*WGPUProcDeviceCreateBuffer)(WGPUDevice device,
                                                 const WGPUBufferDescriptor *descriptor);
typedef WGPUCommandEncoder (*WGPUProcDeviceCreateCommandEncoder)(
    WGPUDevice device, const WGPUCommandEncoderDescriptor *descriptor);
typedef WGPUComputePipeline (*WGPUProcDeviceCreateComputePipeline)(
    WGPUDevice device, const WGPUComputePipelineDescriptor *descriptor);
typedef WGPUPipelineLayout (*WGPUProcDeviceCreatePipelineLayout)(
    WGPUDevice device, const WGPUPipelineLayoutDescriptor *descriptor);
typedef WGPUQuerySet (*WGPUProcDeviceCreateQuerySet)(WGPUDevice device,
                                                     const WGPUQuerySetDescriptor *descriptor);
typedef WGPUShaderModule (*WGPUProcDeviceCreateShaderModule)(
    WGPUDevice device, const WGPUShaderModuleDescriptor *descriptor);
typedef void (*WGPUProcDeviceDestroy)(WGPUDevice device);
typedef WGPUQueue (*WGPUProcDeviceGetQueue)(WGPUDevice device);
typedef void (*WGPUProcDeviceRelease)(WGPUDevice device);
typedef void (*WGPUProcInstanceProcessEvents)(WGPUInstance instance);
typedef void (*WGPUProcInstanceRelease)(WGPUInstance instance);
typedef void (*WGPUProcPipelineLayoutRelease)(WGPUPipelineLayout pipelineLayout);
typedef void (*WGPUProcQuerySetRelease)(WGPUQuerySet querySet);
typedef WGPUFuture (*WGPUProcQueueOnSubmittedWorkDone)(WGPUQueue queue,
                                                       WGPUQueueWorkDoneCallbackInfo callbackInfo);
typedef void (*WGPUProcQueueWriteBuffer)(WGPUQueue queue, WGPUBuffer buffer, uint64_t bufferOffset,
                                         const void *data, size_t size);
typedef void (*WGPUProcQueueRelease)(WGPUQueue queue);
typedef void (*WGPUProcShaderModuleRelease)(WGPUShaderModule shaderModule);

/* Of wgpu.h, which has the functions alone. */
typedef uint32_t (*WGPUProcGetVersion)(void);
typedef size_t (*WGPUProcInstanceEnumerateAdapters)(
    WGPUInstance instance, const WGPUInstanceEnumerateAdapterOptions *options,
    WGPUAdapter *adapters);
typedef WGPUSubmissionIndex (*WGPUProcQueueSubmitForIndex)(WGPUQueue queue, size_t count,
                                                           const WGPUCommandBuffer *commands);
typedef float (*WGPUProcQueueGetTimestampPeriod)(WGPUQueue queue);
typedef WGPUBool (*WGPUProcDevicePoll)(WGPUDevice device, WGPUBool wait,
                                       const WGPUSubmissionIndex *index);
typedef WGPUShaderModule (*WGPUProcDeviceCreateShaderModuleTrusted)(
    WGPUDevice device, const WGPUShaderModuleDescriptor *desc, WGPUShaderRuntimeChecks checks);
typedef void (*WGPUProcComputePassEncoderWriteTimestamp)(WGPUComputePassEncoder pass,
                                                         WGPUQuerySet set, uint32_t index);

#endif
