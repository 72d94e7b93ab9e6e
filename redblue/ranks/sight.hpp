#pragma once
#include <vector>

#include "redblue/masks/visible.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/ranks/rows.hpp"

namespace redblue::ranks {

/// Queries and keys that see nothing but each other: a packed sequence, or all there are.
struct Document {
  Range queries, keys;
};

/// All documents of a problem, in order: also those without queries, or without keys.
std::vector<Document> documents_of(const Problem& problem);

/// Some queries, neighbours, beside some keys, neighbours, as a problem of its own: its sizes and causal_offset are
/// those of these rows.
struct Part {
  Range queries, keys;
  Problem problem;
};

/// Who sees whom in a problem whose rows are spread over ranks: masks, windows, prefixes and packed sequences, by
/// positions in the whole.
class Sight {
 public:
  /// Throws Unsupported, naming the option, where the problem asks for more than that.
  explicit Sight(const Problem& problem);

  /// The documents that have queries and keys.
  const std::vector<Document>& documents() const { return documents_; }
  /// The pairs of each document, of one query head: positions count from its first query and key.
  const std::vector<Pairs>& pairs_of_documents() const { return pairs_; }
  /// Does every query see every key?
  bool sees_all() const { return documents_.size() == 1 && pairs_[0].mask.full() && whole_; }
  /// The pairs of one query head that these rows and keys have.
  Words pairs(const Rows& queries, const Rows& keys) const;
  /// The keys that one of these queries sees, and the queries that see one of these keys. Between two keys of a range
  /// that one query sees, there is none that it does not see.
  Rows keys_seen(const Rows& queries, const Rows& keys) const;
  Rows queries_seeing(const Rows& queries, const Rows& keys) const;
  /// All pairs of these rows and keys, as problems that accumulate; those that have no pair are left out.
  std::vector<Part> parts(const Rows& queries, const Rows& keys) const;

 private:
  /// f(document, queries, keys, pairs of both) for ranges of a document that have a pair, with those rows alone that
  /// have one.
  template <class F>
  void for_ranges(const Rows& queries, const Rows& keys, const F& f) const;

  Problem problem_;
  std::vector<Document> documents_;
  std::vector<Pairs> pairs_;  ///< of each document, of one query head
  bool whole_ = false;        ///< is there one document, with all queries and keys?
};

}  // namespace redblue::ranks
