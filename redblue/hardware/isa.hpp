#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace redblue {

/// Instruction sets that kernels are compiled for.
enum class Isa : std::uint8_t {
  portable,     ///< plain C++, no flags
  avx2,         ///< AVX2, FMA, F16C: 8 floats per vector
  avx512,       ///< AVX-512 F, BW, DQ, VL: 16 floats per vector
  avx512_bf16,  ///< and vdpbf16ps: products of bf16 pairs summed in fp32
  amx_bf16,     ///< and AMX-TILE, AMX-BF16: the same by tiles of 16 rows of 16 pairs
};

/// What kinds of processors run them. A member includes those of its family before it; every processor runs portable
/// code, and nothing else is common to two families.
enum class IsaFamily : std::uint8_t { portable, x86 };

struct IsaFacts {
  Isa isa;
  std::string_view name;
  IsaFamily family;
  bool multiplies_bf16;
};
inline constexpr IsaFacts kIsaFacts[] = {
    {Isa::portable, "portable", IsaFamily::portable, false}, {Isa::avx2, "avx2", IsaFamily::x86, false},
    {Isa::avx512, "avx512", IsaFamily::x86, false},          {Isa::avx512_bf16, "avx512_bf16", IsaFamily::x86, true},
    {Isa::amx_bf16, "amx_bf16", IsaFamily::x86, true},
};
inline constexpr Isa kIsas[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx_bf16};

constexpr const IsaFacts& facts_of(Isa isa) {
  for (const IsaFacts& f : kIsaFacts)
    if (f.isa == isa) return f;
  return kIsaFacts[0];
}
constexpr std::string_view name_of(Isa isa) { return facts_of(isa).name; }
/// Does every processor that has `isa` run code for `other`, too?
constexpr bool includes(Isa isa, Isa other) {
  return other == Isa::portable || (facts_of(isa).family == facts_of(other).family && other <= isa);
}
/// The next smaller set whose code a processor with `isa` runs; nothing below the portable one.
constexpr std::optional<Isa> next_smaller(Isa isa) {
  if (isa == Isa::portable) return std::nullopt;
  const Isa before = static_cast<Isa>(static_cast<std::uint8_t>(isa) - 1);
  return includes(isa, before) ? before : Isa::portable;
}
/// The largest that `isa` includes whose products are of the words that are given, not of bf16.
constexpr Isa without_bf16(Isa isa) {
  while (facts_of(isa).multiplies_bf16) isa = *next_smaller(isa);
  return isa;
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
