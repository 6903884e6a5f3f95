// Kernels for GPUs on a CPU: every thread is a fiber, which runs until it waits for others.
//
// With GPU_CHECKED the kernel's own file is compiled with -fsanitize=thread, whose calls come here
// (no other runtime is there): every access is looked at.  It must lie in memory that the kernel was
// given or in its block's shared memory, be aligned, read what has been written, and be ordered by
// barriers against what other threads did to the same bytes.
#include "device.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#if !defined(__x86_64__)
#error "fibers are switched by instructions of x86-64"
#endif

GpuIndex blockIdx, threadIdx, blockDim;

extern "C" void gpu_switch(void** from, void* to);
asm(R"(
.text
.hidden gpu_switch
.globl gpu_switch
.type gpu_switch,@function
gpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace {

constexpr size_t STACK = 96 << 10;
constexpr int EXCHANGE = 32;  // and the mask: what the lanes of a warp come together for
constexpr unsigned ELSEWHERE = 1u << 24;  // addresses of shared memory: rank + 1, offset

struct Moment {  // of an access: who, and behind how many barriers of each kind
  int thread = -1;
  unsigned cluster = 0, block = 0, warp = 0;
};
struct Cell {  // what happened to a byte last
  Moment written, read[2];
  bool known = false;
  bool by_others = false;  // whether an earlier cluster wrote it
  int coming = -1;  // the thread that is copying to it
};
struct Copying {
  unsigned block, to, bytes;
  unsigned char data[16];
};
struct Fiber;
struct Meeting {
  unsigned wanted = 0;
  vector<Fiber*> here;
};
struct Warp {
  Meeting meeting;
  unsigned passed = 0;
  int purpose = 0;
  float* sums[32];
  const unsigned *left[32], *right[32];
  unsigned* registers[32];
  unsigned long long given[32], *taken[32];
  unsigned addresses[32];
};
struct Block {
  unsigned char* shared = nullptr;
  vector<Cell> cells;
  Meeting meeting;
  unsigned passed = 0, index = 0, running = 0;
  int lent = -1;  // barriers that the cluster had passed when another block read from this one
  vector<Warp> warps;
};
struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;
  Block* block = nullptr;
  Warp* warp = nullptr;
  unsigned thread = 0, lane = 0, number = 0;  // in its block, its warp, its cluster
  bool ended = false, awaited = false;
  unsigned arrivals = 0, passed = 0;  // barriers of the cluster that it has come to, and gone past
  vector<vector<Copying>> groups;
};
struct Global {
  GpuRange range;
  vector<Cell> cells;  // of what may be written
};

const GpuLaunch* launch;
void (*kernel)(const uint64_t*);
vector<Block> blocks;
vector<Fiber> fibers;
vector<Global> globals;
vector<Fiber*> ready;
Meeting everyone;
unsigned complete, coming;  // barriers of the cluster that all have come to; threads at the next
Fiber* now;
void* scheduler;
uint64_t dice;
bool failed;

unsigned roll(unsigned below) {
  dice = dice * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(dice >> 33) % below;
}

[[noreturn]] void leave() {
  gpu_switch(&now->stack_pointer, scheduler);
  abort();
}

[[noreturn]] void fail(const char* format, ...) {
  va_list given;
  va_start(given, format);
  int n = snprintf(launch->message, 512, "block %u, thread %u: ", now->block->index, now->thread);
  vsnprintf(launch->message + n, 512 - n, format, given);
  va_end(given);
  failed = true;
  leave();
}

// ----------------------------------------------------------------------------------- order
Moment moment() {
  return {(int)now->number, now->arrivals, now->block->passed, now->warp->passed};
}

bool before(const Moment& past, const Fiber& fiber) {
  if (past.thread < 0 || past.thread == (int)fiber.number || past.cluster < fiber.passed) return true;
  const Fiber& other = fibers[past.thread];
  if (other.block != fiber.block) return false;
  return past.block < fiber.block->passed ||
         (other.warp == fiber.warp && past.warp < fiber.warp->passed);
}

// In shared memory (in memory of all, tiles that overlap may write the same results twice, and what
// nothing was written to is found by its value).
void note(Cell& cell, bool write, bool shared, unsigned long at) {
  const char* where = shared ? "shared" : "global";
  if (cell.by_others && !write) fail("race: read of %s byte %lu, written by another cluster", where, at);
  if (cell.coming >= 0)
    fail("%s of %s byte %lu, to which thread %d still copies", write ? "write" : "read", where, at, cell.coming);
  if ((shared || !write) && !before(cell.written, *now))
    fail("race: %s of %s byte %lu, written by thread %d", write ? "write" : "read", where, at, cell.written.thread);
  if (write) {
    for (const Moment& read : cell.read)
      if (!before(read, *now)) fail("race: write of %s byte %lu, read by thread %d", where, at, read.thread);
    cell.written = moment();
    cell.read[0] = cell.read[1] = Moment();
    cell.known = true;
    return;
  }
  if (shared && !cell.known) fail("read of %s byte %lu, where nothing was written", where, at);
  if (cell.read[0].thread != (int)now->number) cell.read[1] = cell.read[0];
  cell.read[0] = moment();
}

void note_shared(Block& block, unsigned at, unsigned bytes, bool write) {
  if (at + bytes > launch->shared_bytes) fail("byte %u of shared memory, which has %u", at, launch->shared_bytes);
  if (at % bytes) fail("%u bytes at byte %u of shared memory", bytes, at);
#ifdef GPU_CHECKED
  for (unsigned n = at; n < at + bytes; ++n) note(block.cells[n], write, true, n);
#endif
}

void note_global(uint64_t at, unsigned bytes, bool write) {
#ifdef GPU_CHECKED
  for (Global& g : globals) {
    if (at < g.range.start || at + bytes > g.range.start + g.range.nbytes) continue;
    if (at % bytes) fail("%u bytes at %#lx", bytes, (unsigned long)at);
    if (write && !g.range.writable) fail("write to what is only read");
    if (launch->early && !now->awaited && (write || !g.range.constant))
      fail("%s before inputs are awaited", write ? "write" : "read");
    if (g.range.writable != 1) return;
    for (unsigned n = 0; n < bytes; ++n)
      note(g.cells[at - g.range.start + n], write, false, at - g.range.start + n);
    return;
  }
  fail("%s of %u bytes at %#lx, outside of all that it was given", write ? "write" : "read", bytes, (unsigned long)at);
#endif
}

void access(const void* place, unsigned bytes, bool write) {
  if (!now) return;
  const unsigned char* p = (const unsigned char*)place;
  if (p >= now->stack && p < now->stack + STACK) return;
  if (place == &blockIdx || place == &threadIdx || place == &blockDim) return;
  for (Block& block : blocks)
    if (p >= block.shared && p < block.shared + launch->shared_bytes) {
      if (&block != now->block) fail("shared memory of another block as if it were its own");
      return note_shared(block, p - block.shared, bytes, write);
    }
  note_global((uint64_t)place, bytes, write);
}

// --------------------------------------------------------------------------------- meetings
// Returns true to the last that comes, before the others go on.
bool meet(Meeting& meeting) {
  if (meeting.here.size() + 1 == meeting.wanted) return true;
  meeting.here.push_back(now);
  gpu_switch(&now->stack_pointer, scheduler);
  return false;
}

void go_on(Meeting& meeting) {
  for (Fiber* f : meeting.here) ready.push_back(f);
  meeting.here.clear();
}

// All lanes come with what they give; the last does the work for all.
template <typename Give, typename Work> void together(int purpose, Give give, Work work) {
  Warp& warp = *now->warp;
  if (warp.meeting.here.empty()) warp.purpose = purpose;
  if (warp.purpose != purpose) fail("lanes of one warp at different instructions");
  give(warp, now->lane);
  if (meet(warp.meeting)) {
    work(warp);
    go_on(warp.meeting);
  }
}

void begin() {
  kernel(launch->addresses);
#ifdef GPU_CHECKED
  if (now->arrivals > now->passed) fail("ends before it has awaited the cluster");
  if (--now->block->running == 0 && now->block->lent >= (int)now->passed)
    fail("its block ends while others may read from its shared memory");
#endif
  now->ended = true;
  leave();
}

// ---------------------------------------------------------------------------------- matrices
float half(unsigned word, unsigned n) { return whet_from_f16((unsigned short)(word >> 16 * n)); }
float brain(unsigned word, unsigned n) { return __uint_as_float((word >> 16 * n) << 16); }

float cut(double total) {  // sums of tensor cores are cut off, not rounded
  float f = (float)total;
  if (fabs((double)f) > fabs(total)) f = nextafterf(f, 0.0f);
  return f;
}

template <typename Value> void multiply_halves(Warp& warp, Value value) {
  float a[16][16], b[16][16];
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r)
      for (int n = 0; n < 2; ++n) {
        int row = lane / 4, k = lane % 4 * 2 + n;
        a[row + r % 2 * 8][k + r / 2 * 8] = value(warp.left[lane][r], n);
        b[row + r / 2 * 8][k + r % 2 * 8] = value(warp.right[lane][r], n);
      }
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 8; ++e) {
      int row = lane / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
      double total = warp.sums[lane][e];
      for (int k = 0; k < 16; ++k) total += (double)a[row][k] * b[column][k];
      warp.sums[lane][e] = cut(total);
    }
}

float shorter(unsigned word) { return __uint_as_float(word & 0xffffe000u); }

void multiply_tf32(Warp& warp) {
  float a[16][8], b[16][8];
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r) {
      a[lane / 4 + r % 2 * 8][lane % 4 + r / 2 * 4] = shorter(warp.left[lane][r]);
      b[lane / 4 + r / 2 * 8][lane % 4 + r % 2 * 4] = shorter(warp.right[lane][r]);
    }
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 8; ++e) {
      int row = lane / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
      double total = warp.sums[lane][e];
      for (int k = 0; k < 8; ++k) total += (double)a[row][k] * b[column][k];
      warp.sums[lane][e] = cut(total);
    }
}

template <typename Work> void multiply(int purpose, float* c, const unsigned* a, const unsigned* b, Work work) {
  together(purpose, [=](Warp& w, int lane) { w.sums[lane] = c; w.left[lane] = a; w.right[lane] = b; }, work);
}

void load_matrix(unsigned* r, unsigned address, bool turned) {
  note_shared(*now->block, address, 16, false);
  together(turned ? 5 : 4,
    [=](Warp& w, int lane) { w.registers[lane] = r; w.addresses[lane] = address; },
    [=](Warp& w) {
      const unsigned char* shared = now->block->shared;
      for (int lane = 0; lane < 32; ++lane)
        for (int m = 0; m < 4; ++m) {
          unsigned short part[2];
          for (int n = 0; n < 2; ++n) {
            int row = turned ? lane % 4 * 2 + n : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + n;
            memcpy(&part[n], shared + w.addresses[m * 8 + row] + column * 2, 2);
          }
          w.registers[lane][m] = part[0] | (unsigned)part[1] << 16;
        }
    });
}

void copy(unsigned to, const void* from, unsigned bytes, bool valid) {
  Block& block = *now->block;
  note_shared(block, to, bytes, true);
#ifdef GPU_CHECKED
  for (unsigned n = to; n < to + bytes; ++n) block.cells[n].coming = now->number;
#endif
  if ((uint64_t)from % bytes) fail("a copy of %u bytes from %#lx", bytes, (unsigned long)from);
  Copying made{block.index, to, bytes, {}};
  if (valid) {
    note_global((uint64_t)from, bytes, false);
    memcpy(made.data, from, bytes);
  }
  now->groups.back().push_back(made);
}

const unsigned char* elsewhere(unsigned address, unsigned bytes) {
  if (address < ELSEWHERE) fail("an address without a rank");
  unsigned rank = address / ELSEWHERE - 1, at = address % ELSEWHERE;
  if (rank >= launch->cluster) fail("rank %u in a cluster of %u", rank, launch->cluster);
#ifdef GPU_CHECKED
  if (&blocks[rank] != now->block) {
    if (!blocks[rank].running) fail("read of shared memory of a block that has ended");
    blocks[rank].lent = max(blocks[rank].lent, (int)now->arrivals);
  }
#endif
  note_shared(blocks[rank], at, bytes, false);
  return blocks[rank].shared + at;
}

void prepare() {
  blocks.clear();
  blocks.resize(launch->cluster);
  globals.clear();
  size_t room = (launch->shared_bytes + 1023) / 1024 * 1024;
  for (unsigned n = 0; n < launch->ranges; ++n) globals.push_back({launch->range[n], {}});
#ifdef GPU_CHECKED
  for (Global& g : globals)
    if (g.range.writable == 1) g.cells.resize(g.range.nbytes);
#endif
  unsigned warps = (launch->threads + 31) / 32;
  for (Block& block : blocks) {
    block.shared = (unsigned char*)aligned_alloc(1024, room ? room : 1024);
    block.warps.resize(warps);
    block.meeting.wanted = launch->threads;
    for (unsigned w = 0; w < warps; ++w)
      block.warps[w].meeting.wanted = min(32u, launch->threads - 32 * w);
  }
  everyone.wanted = launch->threads * launch->cluster;
  fibers = vector<Fiber>(everyone.wanted);
}

void start_cluster(unsigned cluster, unsigned char* stacks) {
  complete = coming = 0;
  everyone.here.clear();
  ready.clear();
  for (unsigned n = 0; n < fibers.size(); ++n) {
    Fiber& f = fibers[n];
    f = Fiber();
    f.number = n;
    f.block = &blocks[n / launch->threads];
    f.thread = n % launch->threads;
    f.lane = f.thread % 32;
    f.warp = &f.block->warps[f.thread / 32];
    f.groups.resize(1);
    f.stack = stacks + STACK * n;
    void** top = (void**)(f.stack + STACK - 64);
    *--top = nullptr;  // where `begin` would return to
    *--top = (void*)begin;
    top -= 6;
    f.stack_pointer = top;
    ready.push_back(&f);
  }
  for (unsigned b = 0; b < blocks.size(); ++b) {
    Block& block = blocks[b];
    block.index = cluster * launch->cluster + b;
    block.passed = 0;
    block.running = launch->threads;
    block.lent = -1;
    block.meeting.here.clear();
    memset(block.shared, 0xff, launch->shared_bytes);
#ifdef GPU_CHECKED
    block.cells.assign(launch->shared_bytes, Cell());
#endif
    for (Warp& w : block.warps) { w.passed = 0; w.meeting.here.clear(); }
  }
}

void run_cluster() {
  size_t ended = 0;
  for (size_t next = 0; next < ready.size() && !failed; ++next) {
#ifdef GPU_CHECKED
    swap(ready[next], ready[next + roll(ready.size() - next)]);
#endif
    now = ready[next];
    if (next > 1 << 16) {
      ready.erase(ready.begin(), ready.begin() + next + 1);
      next = -1;
    }
    blockIdx.x = now->block->index;
    threadIdx.x = now->thread;
    gpu_switch(&scheduler, now->stack_pointer);
    ended += now->ended;
  }
  if (!failed && ended < fibers.size()) {
    for (Fiber& f : fibers)
      if (!f.ended) now = &f;
    snprintf(launch->message, 512, "block %u, thread %u: waits for threads that do not come",
             now->block->index, now->thread);
    failed = true;
  }
}

}  // namespace

void gpu_run(const GpuLaunch& given, void (*entry)(const uint64_t*)) {
  launch = &given;
  kernel = entry;
  failed = false;
  dice = given.seed;
  given.message[0] = 0;
  blockDim.x = given.threads;
  prepare();
  size_t nbytes = STACK * fibers.size();
  unsigned char* stacks = (unsigned char*)mmap(nullptr, nbytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (unsigned c = 0; c < given.clusters && !failed; ++c) {
#ifdef GPU_CHECKED
    for (Global& g : globals)  // clusters are in no order: what one writes, no other reads
      for (Cell& cell : g.cells) {
        cell.by_others |= cell.written.thread >= 0;
        cell.written = Moment();
        cell.read[0] = cell.read[1] = Moment();
      }
#endif
    start_cluster(c, stacks);
    run_cluster();
  }
  munmap(stacks, nbytes);
  for (Block& block : blocks) free(block.shared);
  blocks.clear();
  now = nullptr;
}

// ------------------------------------------------------------------------------------ functions
unsigned char* gpu_shared() { return now->block->shared; }
void gpu_wide_access(const void* place, int bytes) {
  const unsigned char* p = (const unsigned char*)place;
  if (!(p >= now->stack && p < now->stack + STACK) && (uint64_t)place % bytes)
    fail("%d bytes at once from %p", bytes, place);
}
void gpu_barrier_of_warp() {
  together(1, [](Warp&, int) {}, [](Warp& w) { ++w.passed; });
}
void gpu_barrier_of_block() {
  Block& block = *now->block;
  if (meet(block.meeting)) {
    ++block.passed;
    go_on(block.meeting);
  }
}
unsigned long long gpu_exchange(unsigned long long bits, int mask) {
  unsigned long long found;  // others may be at their next exchange when this thread goes on
  if (mask <= 0 || mask >= 32) fail("an exchange with lane ^ %d", mask);
  together(EXCHANGE + mask,
    [&](Warp& w, int lane) { w.given[lane] = bits; w.taken[lane] = &found; },
    [=](Warp& w) { for (int lane = 0; lane < 32; ++lane) *w.taken[lane] = w.given[lane ^ mask]; });
  return found;
}
void whet_arrive() {
  if (now->arrivals > now->passed) fail("arrives twice before it awaits the cluster");
  ++now->arrivals;
  if (++coming == everyone.wanted) {
    coming = 0;
    ++complete;
    go_on(everyone);
  }
}
void whet_await_arrivals() {
  if (now->arrivals == now->passed) fail("awaits the cluster and has not arrived");
  if (complete < now->arrivals) {
    everyone.here.push_back(now);
    gpu_switch(&now->stack_pointer, scheduler);
  }
  ++now->passed;
}
void whet_cluster_barrier() {
  whet_arrive();
  whet_await_arrivals();
}
unsigned int whet_shared_address(const void* p) {
  return (unsigned)((const unsigned char*)p - now->block->shared);
}
void whet_copy_16(unsigned int to, const void* from, bool valid) { copy(to, from, 16, valid); }
void whet_copy_16_near(unsigned int to, const void* from, bool valid) { copy(to, from, 16, valid); }
void whet_copy_8(unsigned int to, const void* from, bool valid) { copy(to, from, 8, valid); }
void whet_copy_4(unsigned int to, const void* from, bool valid) { copy(to, from, 4, valid); }
void whet_commit() { now->groups.emplace_back(); }
void gpu_wait(int pending) {
  auto& groups = now->groups;  // the last one is not committed yet
  while ((int)groups.size() - 1 > pending) {
    for (const Copying& c : groups.front()) {
      memcpy(now->block->shared + c.to, c.data, c.bytes);
#ifdef GPU_CHECKED
      for (unsigned n = c.to; n < c.to + c.bytes; ++n) {
        Cell& cell = now->block->cells[n];
        cell.coming = -1;
        cell.written = moment();
        cell.known = true;
      }
#endif
    }
    groups.erase(groups.begin());
  }
}
void whet_await_inputs() { now->awaited = true; }
void whet_launch_next() {}
unsigned int whet_in_rank(unsigned int address, unsigned int rank) {
  return address + (rank + 1) * ELSEWHERE;
}
unsigned int whet_load_cluster_4(unsigned int address) {
  unsigned y;
  memcpy(&y, elsewhere(address, 4), 4);
  return y;
}
uint2 whet_load_cluster_8(unsigned int address) {
  unsigned y[2];
  memcpy(y, elsewhere(address, 8), 8);
  return uint2(y[0], y[1]);
}
uint4 whet_load_cluster_16(unsigned int address) {
  unsigned y[4];
  memcpy(y, elsewhere(address, 16), 16);
  return uint4(y[0], y[1], y[2], y[3]);
}
void whet_load_matrix(unsigned int* r, unsigned int address) { load_matrix(r, address, false); }
void whet_load_turned_matrix(unsigned int* r, unsigned int address) { load_matrix(r, address, true); }
void whet_multiply_add_f16(float* c, const unsigned int* a, const unsigned int* b) {
  multiply(6, c, a, b, [](Warp& w) { multiply_halves(w, half); });
}
void whet_multiply_add_bf16(float* c, const unsigned int* a, const unsigned int* b) {
  multiply(7, c, a, b, [](Warp& w) { multiply_halves(w, brain); });
}
void whet_multiply_add_tf32(float* c, const unsigned int* a, const unsigned int* b) {
  multiply(8, c, a, b, multiply_tf32);
}

// -------------------------------------------------------------------- calls of -fsanitize=thread
#ifdef GPU_CHECKED
#define GPU_ACCESS(bytes) \
  extern "C" void __tsan_read##bytes(void* p) { access(p, bytes, false); } \
  extern "C" void __tsan_write##bytes(void* p) { access(p, bytes, true); } \
  extern "C" void __tsan_unaligned_read##bytes(void* p) { access(p, bytes, false); } \
  extern "C" void __tsan_unaligned_write##bytes(void* p) { access(p, bytes, true); }
GPU_ACCESS(1)
GPU_ACCESS(2)
GPU_ACCESS(4)
GPU_ACCESS(8)
GPU_ACCESS(16)
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_read_range(void* p, unsigned long bytes) {
  for (unsigned long n = 0; n < bytes; ++n) access((char*)p + n, 1, false);
}
extern "C" void __tsan_write_range(void* p, unsigned long bytes) {
  for (unsigned long n = 0; n < bytes; ++n) access((char*)p + n, 1, true);
}
#endif
