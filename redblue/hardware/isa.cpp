#include "redblue/hardware/isa.hpp"

#include <fmt/format.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <string>
#include <vector>

#include "redblue/language/error.hpp"

namespace redblue {

namespace {

std::vector<std::string_view> names(bool (*wanted)(Isa)) {
  std::vector<std::string_view> list;
  for (Isa isa : kIsas)
    if (wanted(isa)) list.push_back(name_of(isa));
  return list;
}

/// Does the processor have AMX-BF16, and does Linux let this process use its tiles? A process asks for them once.
[[maybe_unused]] bool has_tiles() {
#if defined(__x86_64__) && defined(__linux__)
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

bool is_available(Isa isa) {
  if (isa == Isa::portable) return true;
#if defined(__x86_64__)
  // These also ask the operating system (XGETBV) whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::avx2) return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::avx512) return avx512;
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  if (isa == Isa::avx512_bf16) return bf16;
  static const bool tiles = bf16 && has_tiles();
  return tiles;
#else
  return false;
#endif
}

Isa isa_asked_for(std::string_view name) {
  if (name.empty()) {
    Isa largest = Isa::portable;
    for (const Isa isa : kIsas)
      if (is_available(isa) && includes(isa, largest)) largest = isa;
    return largest;
  }
  const auto isa = isa_from_name(name);
  if (!isa)
    throw InvalidProblem(fmt::format("REDBLUE_ISA = '{}' is no instruction set: choose from {}", name,
                                     fmt::join(names([](Isa) { return true; }), ", ")));
  if (!is_available(*isa))
    throw Unsupported(fmt::format("REDBLUE_ISA = '{}': this machine does not have it; it has {}", name,
                                  fmt::join(names(is_available), ", ")));
  return *isa;
}

Isa best_isa() {
  static const std::string name = [] {
    const char* const value = std::getenv("REDBLUE_ISA");
    return std::string(value == nullptr ? "" : value);
  }();
  static const Isa isa = isa_asked_for(name);  // tried again by the next call if it throws
  return isa;
}

}  // namespace redblue
