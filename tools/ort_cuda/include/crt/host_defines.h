/* What CUDA's driver_types.h needs of this header, which wheels leave out. */
#define __device_builtin__
#define __cudart_builtin__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __device__
#define __host__
#define CUDARTAPI
#define CUDARTAPI_CDECL
