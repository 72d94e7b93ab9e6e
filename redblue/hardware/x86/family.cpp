#include "redblue/hardware/family.hpp"

#if defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "redblue/hardware/x86/loops.hpp"

namespace redblue::hardware {

namespace {

/// Does the processor have AMX-BF16, and does Linux let this process use its tiles? A process asks for them once.
bool has_tiles() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTile = 1U << 24, kBf16 = 1U << 22;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kBf16) == 0) return false;
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool processor_has(Isa isa) {
  // These also ask the operating system (XGETBV) whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::avx2) return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::avx512) return avx512;
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  if (isa == Isa::avx512_bf16) return bf16;
  static const bool tiles = bf16 && has_tiles();
  return isa == Isa::amx_bf16 && tiles;
}

std::span<const Loops* const> family_loops() {
  static constexpr const Loops* kLoops[] = {&kAvx2F32, &kAvx2F64, &kAvx512F32, &kAvx512F64, &kAvx512Bf16, &kAmxBf16};
  return kLoops;
}

}  // namespace redblue::hardware
