#pragma once
#include <string>

namespace redblue {

struct Problem;

/// ", causal, window 512,0, softcap 30" of a problem; empty without a mask and modifiers. An offset is said where it is
/// not n_k - n_q.
std::string mask_text(const Problem& p);

}  // namespace redblue
