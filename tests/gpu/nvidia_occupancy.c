/* NVIDIA's own calculator, from the header that comes with Triton, behind one function. */
#include "cuda_occupancy.h"

/* Blocks for each multiprocessor; -1 where the calculator does not know the device. */
int active_blocks(const int *device, int threads, int registers, size_t static_shared, size_t dynamic_shared)
{
    struct cudaOccDeviceProp properties = {
        .computeMajor = device[0],
        .computeMinor = device[1],
        .maxThreadsPerBlock = device[2],
        .maxThreadsPerMultiprocessor = device[3],
        .regsPerBlock = device[4],
        .regsPerMultiprocessor = device[5],
        .warpSize = device[6],
        .sharedMemPerBlock = 48 * 1024,
        .sharedMemPerMultiprocessor = (size_t)device[7],
        .numSms = 1,
        .sharedMemPerBlockOptin = (size_t)device[8],
        .reservedSharedMemPerBlock = (size_t)device[9],
    };
    struct cudaOccFuncAttributes function = {
        .maxThreadsPerBlock = INT_MAX,
        .numRegs = registers,
        .sharedSizeBytes = static_shared,
        .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
        .maxDynamicSharedSizeBytes = dynamic_shared,
    };
    struct cudaOccDeviceState state = {.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED};
    cudaOccResult result;
    cudaOccError status = cudaOccMaxActiveBlocksPerMultiprocessor(
        &result, &properties, &function, &state, threads, dynamic_shared);
    return status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1;
}
