/* A fake of NVIDIA's management library with two GPUs: the first is always busy, the second always idle. */
#include <stdio.h>

typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory;
typedef struct { unsigned int gpu, memory; } utilization;
static const unsigned long long gibibyte = 1ull << 30;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
/* A handle is the number of the device, plus one so that it is not null. */
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(index + 1ul); return index > 1; }
static int number(void *device) { return (int)((unsigned long)device - 1); }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  snprintf(uuid, length, "GPU-%d0000000-0000-0000-0000-000000000000", number(device));
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, utilization *rates) {
  *rates = number(device) == 0 ? (utilization){100, 50} : (utilization){0, 0};
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, memory *info) {
  info->total = 80 * gibibyte;
  info->reserved = 0;
  info->used = number(device) == 0 ? 3 * gibibyte : gibibyte;
  info->free = info->total - info->used;
  return 0;
}
