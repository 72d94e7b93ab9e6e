#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "redblue/problem/sequences.hpp"

/// The cores of a masked problem: the queries that see a key, and the keys that a query sees, cut where no query sees
/// keys on both sides of the cut. A schedule runs on the cores alone and reads nothing else
/// (schedules/parts/cores.hpp).
namespace redblue {

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

/// Cores in order. Copies share them.
class CoreList {
 public:
  explicit CoreList(std::vector<Core> list) : list_(std::make_shared<const std::vector<Core>>(std::move(list))) {}
  auto begin() const { return list_->begin(); }
  auto end() const { return list_->end(); }
  std::size_t size() const { return list_->size(); }
  bool empty() const { return list_->empty(); }
  const Core& operator[](std::size_t i) const { return (*list_)[i]; }

 private:
  std::shared_ptr<const std::vector<Core>> list_;
};

/// All cores of a list, by number.
class Numbered {
 public:
  explicit Numbered(CoreList list);
  const CoreList& cores() const { return list_; }
  index_t count() const { return count_; }
  Sizes operator()(index_t i) const;

 private:
  CoreList list_;
  std::vector<index_t> before_;  ///< cores before each of the list
  index_t count_ = 0;
};

/// each: all cores on their own. one: a single core of each batch, from the first query of any part that sees a key to
/// the last, and the keys likewise; where there are several parts it has them as its sequences.
enum class Cut : std::uint8_t { each, one };

/// The part of a problem with these queries and keys.
Sizes part_of(Sizes x, Range queries, Range keys);

/// The core of one sequence: from the first query that sees a key to the last, and from the first key that a query sees
/// to the last; nothing where no query sees a key.
std::optional<Sizes> core_of(const Sizes& x);

/// The cores of one batch, or of all.
CoreList cores_of(const Sizes& x, std::optional<index_t> batch = {}, Cut cut = Cut::each);

/// The lists hold the cores of one batch each; one list holds all where batches are alike.
std::vector<CoreList> cores_of_batches(const Sizes& x, Cut cut);

/// The problem with envelopes_of its parts, and with patterns_of them (problem/sequences.hpp).
Sizes with_envelopes(const Sizes& x);
Sizes with_patterns(const Sizes& x);

/// While one lives, its thread keeps the lists that cores_of makes, and envelopes, for a planner asks for the same ones
/// at every tiling that it weighs. One inside another does nothing.
class CoreMemo {
 public:
  CoreMemo();
  ~CoreMemo();
  CoreMemo(const CoreMemo&) = delete;
  CoreMemo& operator=(const CoreMemo&) = delete;

  struct Lists;

 private:
  std::unique_ptr<Lists> own_;  ///< null in one that is inside another
};

}  // namespace redblue
