#pragma once
#include "files/tensors.hpp"
#include "options/options.hpp"

namespace redblue::cli {

/// The files of a run over files, and the facts that must be the same for it to be resumed, which are known before it
/// is planned: whatever changes a bit of its outputs is among them, or among the facts of the plan.
file::partial::Options partial_options(const FileOptions& files, const LoadedInputs& loaded, const Problem& p,
                                       const PatternOptions& pattern);

}  // namespace redblue::cli
