#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace redblue {

/// Instruction sets that kernels are compiled for. Each includes those before it.
enum class Isa : std::uint8_t {
  portable,     ///< plain C++, no flags
  avx2,         ///< AVX2, FMA, F16C: 8 floats per vector
  avx512,       ///< AVX-512 F, BW, DQ, VL: 16 floats per vector
  avx512_bf16,  ///< and vdpbf16ps: products of bf16 pairs summed in fp32
  amx_bf16,     ///< and AMX-TILE, AMX-BF16: the same by tiles of 16 rows of 16 pairs
};

inline constexpr Isa kIsas[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx_bf16};

constexpr std::string_view name_of(Isa isa) {
  constexpr std::string_view kNames[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
  return kNames[static_cast<int>(isa)];
}
constexpr std::optional<Isa> isa_from_name(std::string_view name) {
  for (Isa isa : kIsas)
    if (name == name_of(isa)) return isa;
  return std::nullopt;
}

/// Can this processor, under this operating system, run it?
bool is_available(Isa isa);

/// The instruction set of this name or, for an empty name, the largest that is available. Throws InvalidProblem for a
/// name that is none, and Unsupported for an instruction set that this machine does not have.
Isa isa_asked_for(std::string_view name);

/// The one to use: what the environment variable REDBLUE_ISA asks for. The first call reads the variable, and all calls
/// of the process give the same answer, or throw the same error: what is remembered of a run, such as the sizes of its
/// arenas, depends on the instruction set. Any number of threads may call it at once.
Isa best_isa();

}  // namespace redblue
