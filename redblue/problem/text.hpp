#pragma once
#include <string>

namespace redblue {

struct Problem;

/// ", causal, window 512,0, softcap 30" of a problem; empty without a mask and modifiers.
std::string mask_text(const Problem& p);

}  // namespace redblue
