// What the text of a kernel for GPUs finds on a CPU: types, built-in names, and the functions that
// are assembly on a GPU, declared; device.cpp says what they do.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
using namespace std;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)
#define __cluster_dims__()

struct GpuIndex { unsigned x; };
extern GpuIndex blockIdx, threadIdx, blockDim;
unsigned char* gpu_shared();
void gpu_barrier_of_warp();
void gpu_barrier_of_block();
void gpu_wide_access(const void* place, int bytes);
#define __syncwarp gpu_barrier_of_warp
#define __syncthreads gpu_barrier_of_block

// Runs of elements that one access moves: their copies are accesses of that width, which must start
// at a multiple of it.
#ifdef GPU_CHECKED
#define GPU_WIDE(place, bytes) gpu_wide_access(place, bytes)
#else
#define GPU_WIDE(place, bytes)
#endif
struct alignas(8) uint2 {
  unsigned x = 0, y = 0;
  uint2() {}
  uint2(unsigned a, unsigned b) : x(a), y(b) {}
  uint2(const uint2& o) { GPU_WIDE(&o, 8); x = o.x; y = o.y; }
  uint2& operator=(const uint2& o) { GPU_WIDE(this, 8); GPU_WIDE(&o, 8); x = o.x; y = o.y; return *this; }
};
struct alignas(16) uint4 {
  unsigned x = 0, y = 0, z = 0, w = 0;
  uint4() {}
  uint4(unsigned a, unsigned b, unsigned c, unsigned d) : x(a), y(b), z(c), w(d) {}
  uint4(const uint4& o) { GPU_WIDE(&o, 16); x = o.x; y = o.y; z = o.z; w = o.w; }
  uint4& operator=(const uint4& o) {
    GPU_WIDE(this, 16); GPU_WIDE(&o, 16); x = o.x; y = o.y; z = o.z; w = o.w; return *this;
  }
};
inline uint2 make_uint2(unsigned a, unsigned b) { return uint2(a, b); }
inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return uint4(a, b, c, d); }

template <typename To, typename From> inline To gpu_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits of another width");
  return __builtin_bit_cast(To, from);
}
inline float __uint_as_float(unsigned x) { return gpu_bits<float>(x); }
inline float __int_as_float(int x) { return gpu_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return gpu_bits<unsigned>(x); }
inline int __float_as_int(float x) { return gpu_bits<int>(x); }
inline double __longlong_as_double(long long x) { return gpu_bits<double>(x); }
inline long long __double_as_longlong(double x) { return gpu_bits<long long>(x); }

// --------------------------------------------------------- instead of functions that are assembly
inline float whet_from_f16(unsigned short x) { return (float)gpu_bits<_Float16>(x); }
inline unsigned short whet_to_f16(float x) { return gpu_bits<unsigned short>((_Float16)x); }
inline float whet_round_f16_f64(double x) { return (float)(_Float16)x; }
inline unsigned short whet_to_bf16(float x) {  // the even one of two that are equally near
  unsigned bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float whet_tf32(float x) {  // away from zero if two are equally near
  if (!(fabs(x) <= 3.402823466e38f)) return x;
  return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000u);
}
inline float whet_exp_near(float x) {  // nothing smaller than the smallest normal number
  float y = exp2f(x * 0x1.715476p+0f);
  return y < 0x1p-126f ? 0.0f : y;
}
inline float whet_reciprocal_near(float x) {
  float y = 1 / (fabs(x) < 0x1p-126f ? copysign(0.0f, x) : x);
  return fabs(y) < 0x1p-126f ? copysign(0.0f, y) : y;
}
inline float whet_min_f32(float a, float b) { return a != a || b != b ? NAN : fmin(a, b); }
inline float whet_max_f32(float a, float b) { return a != a || b != b ? NAN : fmax(a, b); }

unsigned long long gpu_exchange(unsigned long long bits, int mask);
template <typename T> inline T __shfl_xor_sync(unsigned, T x, int mask) {
  unsigned long long bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = gpu_exchange(bits, mask);
  memcpy(&x, &bits, sizeof x);
  return x;
}

unsigned int whet_shared_address(const void* p);
inline unsigned int whet_start(unsigned int address) { return address; }
template <typename T> inline const T* whet_start_of(const T* address) { return address; }
void whet_copy_16(unsigned int to, const void* from, bool valid);
void whet_copy_16_near(unsigned int to, const void* from, bool valid);
void whet_copy_8(unsigned int to, const void* from, bool valid);
void whet_copy_4(unsigned int to, const void* from, bool valid);
void whet_commit();
void gpu_wait(int pending);
template <int PENDING> inline void whet_wait() { gpu_wait(PENDING); }
void whet_await_inputs();
void whet_launch_next();
void whet_cluster_barrier();
void whet_arrive();
void whet_await_arrivals();
unsigned int whet_in_rank(unsigned int address, unsigned int rank);
unsigned int whet_load_cluster_4(unsigned int address);
uint2 whet_load_cluster_8(unsigned int address);
uint4 whet_load_cluster_16(unsigned int address);
void whet_load_matrix(unsigned int* r, unsigned int address);
void whet_load_turned_matrix(unsigned int* r, unsigned int address);
void whet_multiply_add_f16(float* c, const unsigned int* a, const unsigned int* b);
void whet_multiply_add_bf16(float* c, const unsigned int* a, const unsigned int* b);
void whet_multiply_add_tf32(float* c, const unsigned int* a, const unsigned int* b);

// ------------------------------------------------------------------------------------- launching
struct GpuRange {  // memory that a kernel may use
  uint64_t start, nbytes;
  uint32_t writable;  // 2 if many may write the same to it at once
  uint32_t constant;
};
struct GpuLaunch {
  uint32_t clusters, cluster, threads, shared_bytes, early, ranges, seed, spare;
  const uint64_t* addresses;
  const GpuRange* range;
  char* message;  // of 512 bytes: what went wrong, or nothing
};
void gpu_run(const GpuLaunch& launch, void (*kernel)(const uint64_t*));

template <auto K> struct GpuKernel;
template <typename... A, void (*K)(A...)> struct GpuKernel<K> {
  template <size_t... N> __attribute__((no_sanitize("thread")))
  static void call(const uint64_t* a, index_sequence<N...>) { K((A)a[N]...); }
  __attribute__((no_sanitize("thread"))) static void one(const uint64_t* a) { call(a, index_sequence_for<A...>()); }
};
#define GPU_ENTRY(kernel) \
  extern "C" __attribute__((visibility("default"))) void run_##kernel(const GpuLaunch* launch) { \
    gpu_run(*launch, GpuKernel<kernel>::one); \
  }
