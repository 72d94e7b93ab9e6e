#pragma once
#include <optional>
#include <vector>

#include "redblue/language/function_ref.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/modifiers.hpp"
#include "redblue/schedules/parts/tile_sizes.hpp"

/// Sums and searches over the cores of a masked problem that are the same for every schedule: what a schedule does in
/// one core comes as a function. They are compiled once.
namespace redblue::schedule {

/// What of a schedule's text all its cores share.
struct CoreRules {
  Cut cut;  ///< into which cores it takes a problem
  /// Its outputs with a row for each query or key, or for neither, of one instance.
  std::vector<SlowMatrix> (*outputs)(const Sizes& x, index_t instance);
  bool (*writes)(const Sizes& x, SlowArray a);  ///< Defaults::writes
  std::optional<SlowArray> of_pairs;            ///< its output with a word for each pair
};

using OfCore = FunctionRef<Words(const Sizes& core)>;

/// Without a mask, and a single problem?
bool is_plain(const Sizes& x);
/// The whole problem with nothing hidden: no tiling that is chosen for a masked one moves more words than its tiling.
Sizes without_mask(Sizes x);
/// The batch of an instance.
index_t batch_of(const Sizes& x, index_t instance);
/// Where there are several cores, slopes are loaded once, and stay.
Words kept_slopes(const Sizes& core);
/// The slopes that are loaded for all cores of a batch.
Shape slopes_of_all(const Sizes& x, const CoreList& batch);

/// The sizes of the core with the largest size(core); those of the problem where no query sees a key.
Sizes core_with_most(const Sizes& x, const CoreList& cores, OfCore size);
Sizes largest_of(const Sizes& x, const CoreList& cores);
bool all_of(const CoreList& cores, FunctionRef<bool(const Sizes& core)> f);
/// The first core of each shape but that of `largest`.
std::vector<Sizes> other_shapes(const CoreList& cores, const Sizes& largest);
/// Calls of_all(sizes) or of_each(largest) for each way to find a tiling of a masked problem x, as loops take it, with
/// these cores: one tiling for all cores, chosen for these sizes, or one for each shape of core, `largest` being the
/// largest core.
void for_candidates(const Sizes& x, const CoreList& cores, bool lists_pairs,
                    FunctionRef<void(const Sizes& largest)> of_each, FunctionRef<void(const Sizes& sizes)> of_all);
/// Sizes of tiles that span all cores come to span the whole dimension, so that they keep to any multiples.
void span_dimensions(const Variables& tiling, const Sizes& x, const CoreList& cores);
/// The memory with which a tiling costs least, cost(M), where a smaller one may cost less: M itself, less in steps that
/// do not depend on M, and those around the best of these. cost() has nothing where no tiling fits.
Words best_amount(Words M, FunctionRef<std::optional<Words>(Words M)> cost);

/// The footprint of a problem x as its loops take it (Masked::taken): the larger of the cores, and the word that is
/// written where a query sees no key, or no query a key.
Words footprint_of_cores(const Sizes& x, const CoreRules& rules, OfCore footprint);
/// What second buffers add to it.
Words prefetch_of_cores(const CoreList& cores, OfCore footprint, OfCore prefetch);
/// The I/O of one instance; where batches differ, that of one key-value head of all batches.
Io io_of_cores(const Sizes& x, const CoreRules& rules, FunctionRef<Io(const Sizes& core)> io);
Words macs_of_cores(const CoreList& cores, OfCore macs);
/// Index words: a list of pairs is that of each core, where hidden pairs are formed the row and the key of each; an
/// index of blocks is read once, and stays.
IndexWords index_of_cores(const Sizes& x, bool hides, FunctionRef<IndexWords(const Sizes& part)> index);

/// f(output, its rows) for what no core of the batch writes, of one instance.
void for_hidden(const Sizes& x, const CoreRules& rules, const CoreList& batch, index_t instance,
                FunctionRef<void(const SlowMatrix& output, Range rows)> f);
/// f(row, keys that it does not see) for every row of a matrix over all pairs, `cores` of which see each other; not
/// many keys at a time, for a machine may hold them.
void for_hidden_pairs(const Sizes& x, const Numbered& cores, FunctionRef<void(index_t row, Range keys)> f);

}  // namespace redblue::schedule
