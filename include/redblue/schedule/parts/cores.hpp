#pragma once
#include <array>
#include <vector>

#include "redblue/core/machine.hpp"
#include "redblue/kernel/backward.hpp"
#include "redblue/schedule/parts/knobs.hpp"
#include "redblue/schedule/parts/limits.hpp"

/// The core of a masked problem: the queries that see a key, and the keys that a query sees. A schedule runs on the
/// core alone and reads nothing else; what the others have of the outputs is written directly.
namespace redblue::schedule {

/// Cores of the same sizes, one after another: where a query sees one key only, each position is a core of its own.
struct Core {
  Sizes sizes;
  index_t count = 1;

  /// The sizes of the i-th of them.
  Sizes operator()(index_t i) const {
    Sizes s = sizes;
    s.row0 += i * s.n_q;
    s.key0 += i * s.n_k;
    return s;
  }
};

/// The part of a problem with these queries and keys.
inline Sizes part_of(Sizes x, Range queries, Range keys) {
  x.mask = part_of(x.pairs(), queries, keys).mask;
  x.row0 += queries.begin;
  x.key0 += keys.begin;
  x.n_q = queries.size();
  x.n_k = keys.size();
  return x;
}

/// From the first query that sees a key to the last, and from the first key that a query sees to the last; nothing
/// where no query sees a key.
inline std::optional<Sizes> core_of(const Sizes& x) {
  if (x.mask.full()) return x;
  const Range queries = x.pairs().rows_of({0, x.n_k});
  if (queries.size() == 0) return std::nullopt;
  return part_of(x, queries, x.pairs().keys_of(queries));
}

/// The core cut where no query sees keys on both sides of the cut.
inline std::vector<Core> cores_of(const Sizes& x) {
  const std::optional<Sizes> core = core_of(x);
  if (!core) return {};
  const Mask& mask = core->mask;
  if (mask.lo == -Mask::kFar || mask.hi == Mask::kFar || mask.hi - mask.lo > 1) return {{*core}};
  std::vector<Core> list;  // a query sees one key, and perhaps more of the prefix
  const index_t group = mask.group;
  const index_t together = std::clamp<index_t>(mask.prefix - mask.hi + 1, 0, core->n_q / group);
  if (together > 0) {
    const Range queries{0, together * group};
    list.push_back({part_of(*core, queries, mask.keys(queries, core->n_k))});
  }
  if (const index_t left = core->n_q / group - together; left > 0) {
    const Range position{together * group, (together + 1) * group};
    list.push_back({part_of(*core, position, mask.keys(position, core->n_k)), left});
  }
  return list;
}

/// f(array, queries or keys that no core holds), in order; `first` says where the problem begins.
template <class F>
void for_gaps(index_t n, index_t origin, const std::vector<Core>& cores, index_t Sizes::* begin, index_t Sizes::* size,
              const F& f) {
  index_t done = 0;
  for (const Core& c : cores) {
    if (const index_t at = c.sizes.*begin - origin; at > done) f(Range{done, at});
    done = c.sizes.*begin - origin + c.count * c.sizes.*size;
  }
  if (done < n) f(Range{done, n});
}

/// A schedule S under any mask, from its text for cores.
template <class S>
struct Masked : S {
  using Operands = typename S::Operands;
  using Tiling = typename S::Tiling;

  /// Gradients with respect to shared factors are sums over all cores: one core then spans them.
  static std::vector<Core> cores(const Sizes& x) {
    if constexpr (S::one_core) {
      const std::optional<Sizes> core = core_of(x);
      return core ? std::vector<Core>{{*core}} : std::vector<Core>();
    } else {
      return cores_of(x);
    }
  }
  static Sizes largest_of(const Sizes& x) {
    Sizes best = x;
    Words most = -1;
    for (const Core& c : cores(x))
      if (Words(c.sizes.n_q) * c.sizes.n_k > most) {
        most = Words(c.sizes.n_q) * c.sizes.n_k;
        best = c.sizes;
      }
    if (most < 0) best.mask = Mask{.group = x.mask.group};  // no query sees a key: nothing will run
    return best;
  }
  template <class F>
  static bool all_of(const Sizes& x, const F& f) {
    for (const Core& c : cores(x))
      if (!f(c.sizes)) return false;
    return true;
  }

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    for (const Core& c : cores(x))
      if (const auto why = S::unsupported(c.sizes)) return why;
    return std::nullopt;
  }
  static std::string_view caveat(const Sizes& x, const Tiling& t) { return S::caveat(largest_of(x), t); }
  static bool allows(const Sizes& x, const Tiling& t) {
    return all_of(x, [&](const Sizes& core) { return S::allows(core, t); });
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return S::smallest(largest_of(x), m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    if (x.mask.full()) return S::choose_tiling(x, limits);
    // Where no query sees a key nothing runs, and any tiling will do.
    const std::optional<Tiling> t =
        cores(x).empty() ? smallest(x, limits.multiple) : S::choose_tiling(largest_of(x), limits);
    if (!t || !allows(x, *t) || !limits.fit(footprint(x, *t), prefetch(x, *t))) return std::nullopt;
    return spanning(x, largest_of(x), *t);
  }

  /// The same tiling, with tiles that span the core spanning the whole dimension: so they keep to any multiples.
  static Tiling spanning(const Sizes& x, const Sizes& core, Tiling t) {
    t.knobs([&](const KnobRange& range, index_t& value, bool = true) {
      if (range.along != nullptr && value >= core.*range.along) value = std::max(value, x.*range.along);
    });
    return t;
  }

  /// The larger of the cores, and the word that is written where a query sees no key, or no query a key.
  static Words footprint(const Sizes& x, const Tiling& t) {
    Words most;
    for (const Core& c : cores(x)) most = std::max(most, S::footprint(c.sizes, t));
    for_hidden(x, [&](const SlowMatrix& m, Range) { most = std::max(most, x.word(m.array)); });
    return most;
  }
  static Words prefetch(const Sizes& x, const Tiling& t) {
    Words most, with;
    for (const Core& c : cores(x)) {
      most = std::max(most, S::footprint(c.sizes, t));
      with = std::max(with, S::footprint(c.sizes, t) + S::prefetch(c.sizes, t));
    }
    return with - most;
  }
  static Io io(const Sizes& x, const Tiling& t) {
    Io io;
    for (const Core& c : cores(x)) io = io + Words(c.count) * S::io(c.sizes, t);
    for_hidden(x, [&](const SlowMatrix& m, Range rows) { io.write(m.array, Words(rows.size()) * m.shape.cols); });
    return io;
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    Words macs;
    for (const Core& c : cores(x)) macs += c.count * S::macs(c.sizes, t);
    return macs;
  }

  template <Machine M>
  static void run(M& m, const Operands& x, const Tiling& t) {
    const index_t instance = x.instance();
    for (const Core& c : cores(x.shape)) {
      if (c.count == 1) {
        S::run(m, Operands(c.sizes, x.scale, instance), t);
      } else {
        m.each(c.count, [&](auto& w, index_t i) { S::run(w, Operands(c(i), x.scale, instance), t); });
      }
    }
    for_hidden(x.shape, instance, [&](const SlowMatrix& matrix, Range rows) {
      if (matrix.array == SlowArray::lse)
        m.update(kernel::NoKeysOver{}, matrix.rows(rows));
      else
        m.update(kernel::ZeroOver{}, matrix.rows(rows));
    });
  }

 private:
  /// f(output, its rows) for what no core writes.
  template <class F>
  static void for_hidden(const Sizes& x, index_t instance, const F& f) {
    if (x.mask.full()) return;
    const std::vector<Core> list = cores(x);
    const Operands all(x, 1, instance);
    for (const SlowMatrix& m : all.all()) {
      if (std::find(Operands::outputs.begin(), Operands::outputs.end(), m.array) == Operands::outputs.end()) continue;
      if (m.shape.words() == 0 || !S::writes(x, m.array)) continue;
      const auto fill = [&](Range rows) { f(m, rows); };
      switch (side_of(m.array)) {
        case Side::queries:
          for_gaps(x.n_q, x.row0, list, &Sizes::row0, &Sizes::n_q, fill);
          break;
        case Side::keys:
          for_gaps(x.n_k, x.key0, list, &Sizes::key0, &Sizes::n_k, fill);
          break;
        case Side::neither:
          if (list.empty()) fill({0, m.shape.rows});
          break;
      }
    }
  }
  template <class F>
  static void for_hidden(const Sizes& x, const F& f) {
    for_hidden(x, 0, f);
  }
};

}  // namespace redblue::schedule
