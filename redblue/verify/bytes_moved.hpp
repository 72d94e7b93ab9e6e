#pragma once
#include <fmt/format.h>

#include "redblue/machines/any.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/verify/answering.hpp"
#include "redblue/verify/claims.hpp"
#include "redblue/verify/revisited.hpp"

namespace redblue::claims {

/// Where outputs are narrower than accumulators, the bytes that a plan states are those of a run in which all visits of
/// an output's word but the last write carry it at the width of accumulators: counted word by word. Throws Broken.
inline void bytes_are_those_of_unfinished_words(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t) {
  if (x.accumulate) return;  // outputs that are added to are as wide as accumulators
  plan::Options options;
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    options.width[a] = 1 + x.fast.width[a] / 2;
    options.unfinished[a] = options.width[a] + x.fast.width[a];
  }
  for (const Answers how : answers_for(s)) {
    Answering answering(how);
    Revisited revisited(answering);
    machine::Any any(revisited);
    s.run(any, {x, 1, 1}, t);
    const Io bytes = plan::bytes_of(s.costs(x, t, answering.decisions()).io, options, s.operation);
    for (const SlowArray a : plan::outputs_of(s.operation)) {
      if (a == SlowArray::lse) continue;  // it may be read when it is finished, and has one width
      const auto& visits = revisited.of(a);
      const Words width = options.width[index_of(a)], unfinished = options.unfinished[index_of(a)];
      const Words reads = unfinished * visits.reads,
                  writes = unfinished * visits.unfinished() + width * visits.last_writes;
      if (bytes.reads[index_of(a)] == reads && bytes.writes[index_of(a)] == writes) continue;
      throw Broken(fmt::format(
          "of output {}, {} bytes a word, {} unfinished, {} are read and {} written, the formula says {} "
          "and {}: it is read {} times, written {} times, and {} of these writes are the last",
          name_of(a), width.str(), unfinished.str(), reads.str(), writes.str(), bytes.reads[index_of(a)].str(),
          bytes.writes[index_of(a)].str(), visits.reads, visits.writes, visits.last_writes));
    }
  }
}

}  // namespace redblue::claims
