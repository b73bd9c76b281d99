// What tests also compile for the host, where they compare it with the simulator.
#pragma once

#ifdef __CUDACC__
#define XSTAGE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define XSTAGE_HOST_DEVICE inline
#endif
