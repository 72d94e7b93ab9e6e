#include "redblue/masks/patterns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "files/npz.hpp"
#include "files/open_archive.hpp"
#include "options/options.hpp"
#include "redblue/files/npy.hpp"

namespace redblue::cli {

void PatternOptions::add_to(const Command& command) {
  command
      .option(
          "--globals", globals,
          "with --window (Longformer): all queries see the first N keys, and queries at the first N positions among "
          "the keys see all keys")
      .type_name("N");
  command.option("--dilation", dilation, "with --window: every N-th key of it, so it reaches N times as far")
      .type_name("N");
  command.option("--strided", strided, "Sparse Transformer: the last N keys, and every N-th before; causal")
      .type_name("N");
  command
      .option("--fixed", fixed,
              "Sparse Transformer: LENGTH,LAST: keys of the query's own block of LENGTH, and the LAST of every block "
              "before; causal")
      .type_name("LENGTH,LAST");
  command
      .option(
          "--big-bird", big_bird,
          "BLOCK,WINDOW,GLOBALS,RANDOM: blocks of BLOCK tokens; WINDOW blocks on either side, GLOBALS first blocks, "
          "RANDOM others")
      .type_name("LIST");
  command.option("--pattern-seed", pattern_seed, "of --big-bird: its random blocks (default: 0)").type_name("N");
  command
      .option("--mask", mask,
              "boolean .npy, true keeps: [n_k], [n_q, n_k], [heads, n_q, n_k] or [batch, heads, n_q, n_k]; 1 for a "
              "size that "
              "all share")
      .type_name("FILE");
  command.option("--blocks", blocks, "boolean .npy of blocks, true keeps: [blocks of queries, blocks of keys]")
      .type_name("FILE");
  command.option("--block", block, "with --blocks: the size of a block, QUERIES,KEYS (default: 64,64)")
      .type_name("QUERIES,KEYS");
  command.option("--csr", csr, "sparse matrix of scipy.sparse.save_npz, csr or bsr: its entries are the pairs")
      .type_name("FILE");
}

namespace {

using SharedLists = std::shared_ptr<const RunLists>;
SharedLists shared(RunLists lists) { return std::make_shared<const RunLists>(std::move(lists)); }

/// A boolean array in memory, without its broadcast dimensions expanded.
class Booleans {
 public:
  explicit Booleans(const std::string& path) : tensor_(read(path)) {
    if (tensor_.dtype() != DType::boolean)
      throw InvalidProblem(
          fmt::format("it is of {}, not of bool: 0 and 1 become a mask by .astype(bool); floats that "
                      "are added to scores are a bias",
                      name_of(tensor_.dtype())));
  }
  const std::vector<index_t>& shape() const { return tensor_.shape(); }
  /// The entry at these indices along the last dimensions, 0 along those of size 1.
  std::uint8_t at(std::initializer_list<index_t> indices) const {
    index_t offset = 0;
    auto dimension = static_cast<std::size_t>(tensor_.rank());
    for (auto i = std::rbegin(indices); i != std::rend(indices) && dimension-- > 0; ++i)
      if (tensor_.shape()[dimension] > 1) offset += *i * tensor_.strides()[dimension];
    return std::to_integer<std::uint8_t>(tensor_.data()[offset]);
  }

 private:
  static file::Tensor read(const std::string& path) {
    if (is_npz(path) || has_extension(path, ".safetensors"))
      throw InvalidProblem(
          "it takes a .npy file; a tensor inside of the --input of a run is taken by --name bias=NAME (of bool: true "
          "keeps), and a sparse matrix of scipy.sparse by --csr");
    return file::read_npy(path);
  }
  file::Tensor tensor_;
};

/// The patterns of a boolean mask: one for all, for each head, or for each head of each batch.
std::vector<SharedLists> of_mask(const Problem& p, const std::string& path) {
  const Booleans mask(path);
  const std::array<index_t, 4> full{p.batch, p.heads, p.n_q, p.n_k};
  std::vector<index_t> shape = mask.shape();
  bool fits = shape.size() <= 4;
  if (fits) shape.insert(shape.begin(), 4 - shape.size(), 1);
  for (std::size_t k = 0; fits && k < 4; ++k) fits = shape[k] == 1 || shape[k] == full[k];
  if (!fits)
    throw InvalidProblem(
        fmt::format("[{}] does not broadcast to [{}] (batch, heads, n_q, n_k): each size must be that, or 1",
                    fmt::join(mask.shape(), ", "), fmt::join(full, ", ")));
  require_memory_for_lists(p.n_q, p.n_k);
  const index_t batches = shape[0], heads = shape[0] > 1 ? p.heads : shape[1];
  std::vector<SharedLists> patterns;
  for (index_t b = 0; b < batches; ++b)
    for (index_t h = 0; h < heads; ++h) {
      if (shape[1] == 1 && h > 0) {  // all heads of a batch share it
        patterns.push_back(patterns.back());
        continue;
      }
      RunLists rows;
      rows.set_index({PatternIndex::Kind::pairs});
      std::vector<Range> runs;
      for (index_t i = 0; i < p.n_q; ++i) {
        if (i == 0 || shape[2] > 1) {
          runs.clear();
          for (index_t j = 0; j < p.n_k; ++j)
            if (mask.at({b, h, i, j}) != 0) runs.push_back({j, j + 1});
        }
        rows.append(1, runs);
      }
      patterns.push_back(shared(std::move(rows)));
    }
  return patterns;
}

RunLists of_blocks(const patterns::Between& x, const std::string& path, index_t rows, index_t cols) {
  const Booleans blocks(path);
  const std::vector<index_t> wanted{ceil_div(x.n_q, rows), ceil_div(x.n_k, cols)};
  if (blocks.shape() != wanted)
    throw InvalidProblem(fmt::format("it is [{}], and n_q = {}, n_k = {} have [{}] blocks of {} x {}",
                                     fmt::join(blocks.shape(), ", "), x.n_q, x.n_k, fmt::join(wanted, ", "), rows,
                                     cols));
  require_memory_for_lists(x.n_q, x.n_k);
  std::vector<std::uint8_t> seen;
  seen.reserve(static_cast<std::size_t>(wanted[0] * wanted[1]));
  for (index_t I = 0; I < wanted[0]; ++I)
    for (index_t J = 0; J < wanted[1]; ++J) seen.push_back(blocks.at({I, J}));
  return patterns::of_blocks(x, rows, cols, seen);
}

RunLists of_sparse(const patterns::Between& x, const std::string& path) {
  const SparseMatrix m = read_sparse_npz(path);
  if (m.shape[0] != x.n_q || m.shape[1] != x.n_k)
    throw InvalidProblem(fmt::format("its shape is ({}), and the problem has n_q = {}, n_k = {}",
                                     fmt::join(m.shape, ", "), x.n_q, x.n_k));
  const index_t rows = m.block[0], cols = m.block[1];
  if (x.n_q % rows != 0 || x.n_k % cols != 0)
    throw InvalidProblem(fmt::format("blocks of {} x {} do not divide n_q = {}, n_k = {}", rows, cols, x.n_q, x.n_k));
  const patterns::Between blocks{x.n_q / rows, x.n_k / cols};
  RunLists lists = patterns::of_csr(blocks, m.indptr, m.indices);
  if (rows == 1 && cols == 1) return lists;
  RunLists expanded;
  expanded.set_index(lists.index());
  lists.for_groups([&](Range part, std::span<const Range> runs) {
    std::vector<Range> keys(runs.begin(), runs.end());
    for (Range& run : keys) run = {run.begin * cols, run.end * cols};
    expanded.append(part.size() * rows, keys);
  });
  return expanded;
}

/// make(), whose complaints get the option before them.
template <class Make>
auto of_option(const char* option, const std::string& given, const Make& make) {
  try {
    return make();
  } catch (const InvalidProblem& e) {
    throw InvalidProblem(fmt::format("{} {}: {}", option, given, e.what()));
  } catch (const Unsupported& e) {
    throw Unsupported(fmt::format("{} {}: {}", option, given, e.what()));
  }
}

/// The pairs that both lists of patterns show; each list has one pattern for all, or one for each head (of each batch).
std::vector<SharedLists> intersected_each(const std::vector<SharedLists>& a, const std::vector<SharedLists>& b) {
  if (a.empty()) return b;
  const std::size_t count = std::max(a.size(), b.size());
  const auto of = [](const std::vector<SharedLists>& list, std::size_t i) { return list[i % list.size()]; };
  std::vector<SharedLists> both;
  both.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool known = i > 0 && of(a, i) == of(a, i - 1) && of(b, i) == of(b, i - 1);
    both.push_back(known ? both.back() : shared(patterns::intersected(*of(a, i), *of(b, i))));
  }
  return both;
}

/// Would this window with this dilation, as a pattern, have so large a number of pairs that no order is searched for
/// it? Only where residues show the same pairs: positions of a pattern do not begin anew with each sequence.
bool is_large(Problem p, index_t dilation) {
  const bool positions =
      !p.several() || (p.cu_seqlens_q == p.cu_seqlens_k && p.seqused_q.empty() && p.seqused_k.empty());
  if (dilation < 2 || dilation > p.n_k || p.prefix > 0 || !positions || !p.may_move() ||
      p.method_kind() != MethodKind::exact)
    return false;
  p.dilation = dilation;
  p.validate();
  return visible_pairs(p.sizes()) > Words(kMostRunsToSearch) * p.group();  // of a position its heads are one list
}

}  // namespace

void PatternOptions::apply_to(Problem& p, bool window, bool by_residues) const {
  const bool with_window = globals || dilation, files = mask || blocks || csr;
  if (pattern_seed && !big_bird)
    throw InvalidProblem(fmt::format("--pattern-seed {} is for --big-bird: give that, too", *pattern_seed));
  if (block && !blocks) throw InvalidProblem(fmt::format("--block {} is for --blocks: give that, too", *block));
  if (!with_window && !strided && !fixed && !big_bird && !files) return;
  constexpr index_t kMost = index_t{1} << 31;
  if (p.n_q > kMost || p.n_k > kMost)
    throw InvalidProblem(fmt::format("n_q = {}, n_k = {}: patterns are for at most 2^31 of each", p.n_q, p.n_k));
  const patterns::Between x{p.n_q, p.n_k, p.causal_offset};
  std::vector<SharedLists> all;
  if (mask) all = of_option("--mask", *mask, [&] { return of_mask(p, *mask); });
  const auto also = [&](RunLists lists) { all = intersected_each(all, {shared(std::move(lists))}); };
  if (blocks) {
    const auto list = parse_list("--block", block.value_or("64,64"), "QUERIES,KEYS");
    for (const index_t size : list)
      if (size < 1) throw InvalidProblem(fmt::format("--block {}: give sizes of 1 or more", *block));
    also(of_option("--blocks", *blocks, [&] { return of_blocks(x, *blocks, list[0], list[1]); }));
  }
  if (csr) also(of_option("--csr", *csr, [&] { return of_sparse(x, *csr); }));
  if (!files) require_memory_for_lists(p.n_q, p.n_k);  // rules: no file has another shape
  if (with_window) {
    if (!window) throw InvalidProblem("--globals and --dilation are for --window LEFT,RIGHT: give that, too");
    if (p.prefix > 0 && !p.causal)
      throw InvalidProblem(fmt::format(
          "--prefix {}: a window with --globals or --dilation is a pattern, and --prefix is for masks: give "
          "--causal, too, or --globals",
          p.prefix));
    if (by_residues && !globals && !strided && !fixed && !big_bird && !files && is_large(p, *dilation)) {
      p.dilation = *dilation;
      return;
    }
    const index_t left = p.window_left.value_or(-1), right = p.window_right.value_or(-1);
    also(patterns::longformer(x, left, right, globals.value_or(0), dilation.value_or(1)));
    p.window_left = p.window_right = std::nullopt;
  }
  if (strided)
    also(of_option("--strided", fmt::format("{}", *strided), [&] { return patterns::strided(x, *strided); }));
  if (fixed) {
    const auto list = parse_list("--fixed", *fixed, "LENGTH,LAST");
    also(of_option("--fixed", *fixed, [&] { return patterns::fixed(x, list[0], list[1]); }));
  }
  if (big_bird) {
    const auto list = parse_list("--big-bird", *big_bird, "BLOCK,WINDOW,GLOBALS,RANDOM");
    also(of_option("--big-bird", *big_bird, [&] {
      return patterns::big_bird(x, {list[0], list[1], list[2], list[3], pattern_seed.value_or(0)});
    }));
  }
  p.patterns = std::move(all);
}

}  // namespace redblue::cli
