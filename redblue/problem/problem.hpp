#pragma once
#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/masks/order.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/sizes.hpp"

namespace redblue {

/// The keys that each query may see, for Problem::patterns. What is made of them is kept for the next time.
class Patterns {
 public:
  Patterns() = default;
  Patterns(
      std::vector<std::shared_ptr<const RunLists>> list);  // NOLINT(google-explicit-constructor): a list is patterns
  Patterns(std::initializer_list<std::shared_ptr<const RunLists>> list) : Patterns(std::vector(list)) {}

  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  const RunLists& operator[](std::size_t k) const { return *list_[k]; }
  /// Do all heads and batches have the same?
  bool alike() const;
  /// Has one too many runs to search for an order of its queries and keys? (redblue/masks/order.hpp)
  bool large() const;

 private:
  friend struct Problem;
  struct Made;
  std::vector<std::shared_ptr<const RunLists>> list_;
  std::shared_ptr<Made> made_;
};

/// Attention over `batch` x `heads`, or its gradients: O = softmax(scale Q K^T) V, lse = log of the row sums of
/// exp(scale Q K^T). heads / kv_heads query heads (a group) share one head of K and V. A shared word is counted once,
/// and dK and dV are sums over the group. docs/semantics.md says in which order masks and modifiers act.
struct Problem {
  Operation op = Operation::forward;
  index_t batch = 1;
  index_t heads = 1;
  std::optional<index_t> kv_heads{};  ///< default: heads; must equal heads where Q, K, V are projected
  index_t n_q = 0;
  index_t n_k = 0;
  index_t d = 0;
  index_t d_v = 0;
  bool causal = false;                     ///< query i sees keys j <= i + offset
  std::optional<index_t> causal_offset{};  ///< the offset; default n_k - n_q (bottom-right: the last sees all keys)
  std::optional<index_t> window_left{};    ///< query i sees no key before i + offset - window_left
  std::optional<index_t> window_right{};   ///< query i sees no key after i + offset + window_right
  index_t prefix = 0;                      ///< the first keys, which neither causal nor window_right hides
  /// Above 1: query i sees only keys whose distance from i + offset is a multiple of it, and the window counts such
  /// steps. Queries and keys of each residue are then taken together: each residue has a window without gaps. It goes
  /// neither with alibi, dropout, patterns and approximations nor with scores and weights: patterns::window leaves all
  /// in place.
  index_t dilation = 1;
  std::optional<double> scale{};  ///< default 1 / sqrt(d); 1 where scores are A1 X A2^T
  bool lse_required = false;      ///< count lse in the bound, and make naive write it (all others do anyway)
  Score score = Score::softmax;   ///< other score functions have no lse
  /// What stands in place of exact attention; null: nothing. approximate() makes it of a text. approximate_exp(degree,
  /// range) is a polynomial in place of e^z, O = SUM_j p(z_ij) v_j / SUM_j p(z_ij), z = scale q.k;
  /// polynomials_of_rows(degree, range, how) gives each row a polynomial for how far its own scores can go;
  /// approximate_by(Performer{256}) is one of the published methods of methods/maths/method.hpp, of whose errors
  /// nothing is proved. A plan of such a problem has schedules for it only, and no lse.
  AnyApproximation approximation{};
  Sources sources = Sources::distinct;  ///< are A1, A2, A3 one array? (where Q, K, V are projected)
  /// Packed sequences: sequence s has the queries cu_seqlens_q[s] to cu_seqlens_q[s + 1] - 1, the keys of cu_seqlens_k
  /// likewise, and sees nothing else. Both go from 0 to n_q (n_k); where n_q = n_k one list will do for both.
  std::vector<index_t> cu_seqlens_q{}, cu_seqlens_k{};
  /// Padding: batch b, or packed sequence b, has seqused_q[b] queries and seqused_k[b] keys in use. Empty: all.
  std::vector<index_t> seqused_q{}, seqused_k{};
  /// The keys that each query may see where that is no mask of the kinds above: one list for all, one for each query
  /// head, or one for each query head of each batch. redblue/masks/patterns.hpp makes them. Causal, window, prefix and
  /// sequences hide keys of them, too.
  Patterns patterns{};
  /// In which order their queries and keys are taken: masks/order.hpp. With ALiBi or dropout they stay where they are.
  /// A planner may choose it (plan::Options::reorder).
  PatternOrder order = PatternOrder::natural;
  double softcap = 0;                            ///< > 0: scores become softcap tanh(score / softcap)
  std::optional<std::array<index_t, 4>> bias{};  ///< its shape: [batch, heads, n_q, n_k], or 1 where all share it
  bool bias_gradient = false;                    ///< backward: form dBias, summed over what shares the bias
  bool bias_direction = false;                   ///< tangent: the bias moves, along tBias; second: gBias and LBias, too
  bool alibi = false;                            ///< score -= slopes[head] |i + causal_offset - j|; tensor slopes
  bool sinks = false;            ///< one more score in each row, sinks[head], whose value is 0; tensor sinks
  bool sinks_gradient = false;   ///< backward: form dSinks
  bool sinks_direction = false;  ///< tangent: the sinks move, along tSinks; second: gSinks and LSinks, too
  bool lse_gradient = false;     ///< backward: lse has a gradient, too; tensor dlse
  double dropout = 0;            ///< the share of weights that become 0, at random
  index_t seed = 0;              ///< of dropout, from 0 to 2^53: which weights depends on it and on their place only
  /// Where the tensors are a part of a whole, in what dropout counts: the first query head, the query heads of the
  /// whole, the first query, the first key. So parts drop what the whole drops. Default: the tensors are the whole.
  std::optional<std::array<index_t, 4>> dropout_from{};
  bool forward_given = true;  ///< gradients: O and lse are inputs; false: a forward plan runs first and is counted
  index_t d_in = 0;           ///< backward_w: columns of A1, A2, A3
  /// forward: o and lse hold what attention to other keys gave, and become what attention to these and those gives;
  /// rows that see no key keep theirs. backward: dq, dk and dv hold gradients, to which those of these keys are added,
  /// from o and lse of all keys. Exact attention, without sinks and bias_gradient; a mask and ALiBi want
  /// causal_offset, dropout wants dropout_from. merge always does so.
  bool accumulate = false;

  /// Throws InvalidProblem naming the offending size, its value and what would work.
  void validate() const;
  /// Throws InvalidProblem where an option is set that this operation does not heed. validate() lets lse_required stand
  /// in a gradient and forward_given in a forward pass, so that one problem can describe both.
  void require_heeded() const;
  /// Throws InvalidProblem unless this operation can be done for a part of the keys, the first one, too, which is added
  /// to nothing.
  void require_part() const;
  /// Throws InvalidProblem unless causal_offset is given, for a part of the keys where something counts from it: only
  /// the caller knows where the part lies among all keys.
  void require_offset_of_part(bool something_counts) const;

  index_t group() const { return heads / kv_heads.value_or(heads); }      ///< query heads per key-value head
  index_t instances() const { return batch * kv_heads.value_or(heads); }  ///< independent problems
  double scale_or_default() const;
  /// Has it row statistics, lse, and D of gradients?
  bool has_statistics() const { return score == Score::softmax && approximation == nullptr; }
  const MethodKind& method_kind() const { return kind_of(approximation); }
  /// Sets the approximation from a text: "2:1.0" (a polynomial of degree 2 for scores from -1 to 1),
  /// "2:1.0,taylor", "linear", "performer:256,seed=7", "linformer:64,signs,seed=7", "nystroem:64,iterations=6",
  /// "smyrf:rounds=4,cluster=64", "hyper:block=64,samples=64", "reformer:rounds=4,chunk=64,buckets=16",
  /// "coreset:block=128,rank=32,tau=balanced,carried,seed=7", "sample:64,seed=7"; of each row of scores a polynomial of
  /// its own: "2:3,centred,exact-keys=16", "2:1,gaussian", "2:1.5,gaussian,cluster=64". Throws InvalidProblem.
  void approximate(std::string_view text);
  /// A text that approximate() reads as this approximation; empty for exact attention.
  std::string approximate_text() const;
  bool masked() const { return causal || window_left || window_right || dilation > 1; }
  bool counts_from_offset() const { return masked() || alibi; }
  /// Is the causal offset another than the default one? Each of several sequences has a default of its own, which one
  /// number need not be.
  bool moves_diagonal() const {
    return causal_offset && counts_from_offset() && (several() || *causal_offset != n_k - n_q);
  }
  /// Has it packed or padded sequences? Causal offset, window and prefix are then counted from the first query and key
  /// of each, and the default offset is its number of keys less its number of queries.
  bool several() const {
    return !(cu_seqlens_q.empty() && cu_seqlens_k.empty() && seqused_q.empty() && seqused_k.empty());
  }
  /// The mask without sequences and patterns; its rows are stacked query heads; one that hides nothing is full().
  Mask mask() const;
  Modifiers modifiers() const;
  /// Throws Unsupported where the order of a pattern is too much work to find.
  Sizes sizes() const;  ///< of one instance, query heads stacked position-major
  /// May its queries and keys be taken in another order than they have? may_reorder: may a planner choose that order,
  /// for it has patterns?
  bool may_move() const;
  bool may_reorder() const { return !patterns.empty() && may_move(); }
  /// Takes queries and keys of the patterns in this order; nothing: the planner chooses. Throws InvalidProblem where an
  /// order is asked for and there is no pattern.
  void take_order(std::optional<PatternOrder> asked);
  /// Must a forward pass run first, for O and lse?
  bool forward_first() const;
  /// The forward problem whose O and lse this one needs.
  Problem forward() const;

 private:
  void require_modifiers() const;
  void require_lse_gradient() const;
  void require_accumulate() const;
  void require_approximation() const;
  void require_sequences() const;
  void require_patterns() const;
  void require_order() const;
  void require_dilation() const;
  Mask mask_of(index_t keys, index_t offset, index_t shown) const;
  std::shared_ptr<const Sequences> packed_sequences() const;
  std::shared_ptr<const Sequences> sequences(Mask& whole) const;
  std::shared_ptr<const Sequences> sequences_of_patterns(Mask& whole) const;
};

}  // namespace redblue
