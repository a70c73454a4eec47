/* Memory of other processes: CUDA's words for model/export.h.
 *
 * CUDA Driver API, cuIpcGetMemHandle and following: only what cuMemAlloc gave can be exported; a
 * handle stands for the whole allocation, whichever of its addresses was named; the exporting
 * process itself cannot open it.
 */
#include "driver.h"

CU_CALL(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address), (handle, address)) {
    struct emu_memory *memory = emu_memory_find(address);
    if (!handle || !memory || memory->object.kind != EMU_DEVICE_MEMORY)
        return CUDA_ERROR_INVALID_VALUE;
    return cu_result(emu_export_memory(memory, handle->reserved));
}

CU_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
        (address, handle, flags)) {
    struct emu_memory *memory;
    if (!address || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cu_result(emu_open_memory(handle.reserved, cu_current(), &memory));
    if (!result)
        *address = memory->object.node.base;
    return result;
}

CU_CALL(cuIpcCloseMemHandle, (CUdeviceptr address), (address)) {
    struct emu_memory *memory = emu_memory_at(EMU_OPEN, address);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    emu_close_memory(memory);
    return CUDA_SUCCESS;
}
