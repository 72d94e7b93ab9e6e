#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "redblue/methods/maths/hashing.hpp"
#include "redblue/methods/maths/method.hpp"
#include "redblue/methods/maths/random_features.hpp"
#include "redblue/verify/oracle/approximate_rows.hpp"

/// The weights of published approximations (methods/maths/method.hpp), row by row and key by key, so that outputs are
/// sums of weights times values like those of exact attention. With the random numbers of the schedules, and nothing
/// else of them.
namespace redblue::oracle {

template <class T>
class MethodWeights {
 public:
  MethodWeights() = default;
  MethodWeights(const Method& method, const Instance<T>& x)
      : method_(method), block_(x.block), nudge_(x.nudge), core_{x.queries, x.keys, x.causal} {
    std::visit([&](const auto& m) { prepare(m, x.scale, x.Q, x.K); }, method_);
  }

  /// The weights of query i on these keys, which are all of them where the method knows no mask.
  std::vector<T> operator()(index_t i, const std::vector<index_t>& keys) const {
    if (meets_.shape.rows > 0) return meeting(i, keys);
    std::vector<T> w;
    w.reserve(keys.size());
    for (const index_t j : keys) w.push_back(weight(i, j));
    const T all = normalised() ? T(1) : sum<T>(static_cast<index_t>(w.size()), block_, [&](index_t k) {
      return w[static_cast<std::size_t>(k)];
    });
    for (T& x : w) x /= all;
    return w;
  }

  /// Do they meet in a cluster?
  bool meet(index_t i, index_t j) const { return meets_.shape.rows > 0 && meets_(i, j) > 0; }

 private:
  /// Weights meets_ij e^(score_ij) over their sum; none where nothing meets.
  std::vector<T> meeting(index_t i, const std::vector<index_t>& keys) const {
    T most = -std::numeric_limits<T>::infinity(), all = 0;
    for (const index_t j : keys)
      if (meets_(i, j) > 0) most = std::max(most, scores_(i, j));
    std::vector<T> w(keys.size());
    for (std::size_t k = 0; k < keys.size(); ++k)
      if (const T times = meets_(i, keys[k]); times > 0) all += w[k] = times * std::exp(scores_(i, keys[k]) - most);
    for (T& x : w) x = all > 0 ? x / all : T(0);
    return w;
  }
  /// left_i . right_j
  T weight(index_t i, index_t j) const {
    return sum<T>(left_.shape.cols, block_, [&](index_t a) { return left_(i, a) * right_(j, a); });
  }
  bool normalised() const { return !std::holds_alternative<LinearAttention>(method_) && !random_features_; }

  void prepare(const std::monostate&, T, const Matrix<T>&, const Matrix<T>&) {}
  void prepare(const LinearAttention&, T, const Matrix<T>& Q, const Matrix<T>& K) {
    left_ = Q;
    right_ = K;
    for (Matrix<T>* m : {&left_, &right_})
      for (T& x : m->words) x = x > 0 ? x + 1 : std::exp(x);
  }
  void prepare(const Performer& p, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    random_features_ = true;
    const auto table = random_features(p.features, Q.shape.cols, p.seed);
    Matrix<T> omega({Q.shape.cols, p.features});
    for (index_t a = 0; a < p.features; ++a)
      for (index_t t = 0; t < Q.shape.cols; ++t) omega(t, a) = static_cast<T>(table->template row<double>(a)[t]);
    left_ = product(Q, omega, block_);
    right_ = product(K, omega, block_);
    T largest = -std::numeric_limits<T>::infinity();
    for (index_t j = 0; j < K.shape.rows; ++j) {
      const T less = scale / 2 * sum<T>(K.shape.cols, block_, [&](index_t t) { return K(j, t) * K(j, t); });
      for (index_t a = 0; a < p.features; ++a) {
        right_(j, a) = std::sqrt(scale) * right_(j, a) - less;
        largest = std::max(largest, right_(j, a));
      }
    }
    for (T& x : right_.words) x = std::exp(x - largest);  // factors of all weights cancel, and those of a row
    for (index_t i = 0; i < Q.shape.rows; ++i) {
      T most = -std::numeric_limits<T>::infinity();
      for (index_t a = 0; a < p.features; ++a) most = std::max(most, left_(i, a));
      for (index_t a = 0; a < p.features; ++a) left_(i, a) = std::exp(std::sqrt(scale) * (left_(i, a) - most));
    }
  }
  void prepare(const Linformer& l, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    Matrix<T> E = means(l.rank, K.shape.rows);
    for (index_t a = 0; l.random_signs && a < l.rank; ++a)
      for (index_t j = 0; j < K.shape.rows; ++j)
        E(a, j) = (random_sign_is_negative(l.seed, a, j) ? -1 : 1) / std::sqrt(static_cast<T>(l.rank));
    left_ = softmax(Q, product(E, K, block_), scale);
    right_ = E.transposed();
  }
  void prepare(const Nystroemformer& n, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    const Matrix<T> few_Q = product(means(n.landmarks, Q.shape.rows), Q, block_),
                    few_K = product(means(n.landmarks, K.shape.rows), K, block_);
    const Matrix<T> A = softmax(few_Q, few_K, scale);
    left_ = softmax(Q, few_K, scale);
    right_ = product(pseudo_inverse(A, n.iterations), softmax(few_Q, K, scale), block_).transposed();
  }

  void prepare(const Smyrf& s, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    begin_meeting(Q, K, scale);
    const index_t d = Q.shape.cols;
    const auto normals = random_normals(s.rounds, d + 2, s.seed);
    const auto number = [](const Matrix<T>& X, index_t i, const double* a) {
      return static_cast<float>(hash_product<T>(row_of(X, i), 0, a));
    };
    const auto largest = [&](const Matrix<T>& X, Range rows) {
      float most = 0;
      for (index_t i = rows.begin; i < rows.end; ++i) most = std::max(most, number(X, i, nullptr));
      return most;
    };
    const float S = largest(Q, core_.queries) + largest(K, core_.keys);
    for (index_t r = 0; r < s.rounds; ++r) {
      const double* a = normals->template row<double>(r);
      const auto sort_side = [&](const Matrix<T>& X, Range rows, double normal) {
        return sorted_by(rows, [&](index_t i) {
          return static_cast<double>(smyrf_key(number(X, i, a), number(X, i, nullptr), S, normal));
        });
      };
      meet_in_clusters(sort_side(Q, core_.queries, a[d + 1]), sort_side(K, core_.keys, a[d]), s.cluster);
    }
  }
  void prepare(const HyperAttention& h, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    begin_meeting(Q, K, scale);
    const auto planes = random_normals(h.planes, Q.shape.cols, h.seed);
    const auto sort_side = [&](const Matrix<T>& X, Range rows) {
      return sorted_by(rows, [&](index_t i) { return static_cast<double>(sign_bucket<T>(row_of(X, i), 0, *planes)); });
    };
    const std::vector<index_t> keys = sort_side(K, core_.keys);
    meet_in_clusters(sort_side(Q, core_.queries), keys, h.block);
    const Matrix<T> within = meets_;
    for (const index_t rank : random_ranks(h.samples, K.shape.rows, h.seed)) {
      const index_t j = keys[static_cast<std::size_t>(rank)];
      for (index_t i = 0; i < Q.shape.rows; ++i)
        if (within(i, j) == 0) meets_(i, j) += static_cast<T>(K.shape.rows) / static_cast<T>(h.samples);
    }
  }
  void prepare(const Reformer& f, T scale, const Matrix<T>& X, const Matrix<T>& K) {
    Matrix<T> units = X;
    const index_t n = X.shape.rows;
    for (index_t j = 0; j < n; ++j) {
      const T length = std::sqrt(sum<T>(X.shape.cols, block_, [&](index_t t) { return X(j, t) * X(j, t); }));
      for (index_t t = 0; t < X.shape.cols && length > 0; ++t) units(j, t) /= length;
    }
    begin_meeting(X, units, scale);
    for (index_t i = 0; i < n; ++i) scores_(i, i) = static_cast<T>(Reformer::own);
    const index_t half = f.buckets / 2, chunks = (n + f.chunk - 1) / f.chunk;
    const auto rotations = random_normals(f.rounds * half, K.shape.cols, f.seed);
    for (index_t r = 0; r < f.rounds; ++r) {
      const std::vector<index_t> sorted = sorted_by({0, n}, [&](index_t i) {
        return static_cast<double>(rotation_bucket<T>(row_of(X, i), 0, *rotations, r, half));
      });
      for (index_t a = 0; a < n; ++a)
        for (index_t b = 0; b < n; ++b) {
          const index_t own = a / f.chunk, other = b / f.chunk;
          const bool before = own > 0 ? other == own - 1 : !core_.causal && other == chunks - 1;
          if (own == other || before)
            meets_(sorted[static_cast<std::size_t>(a)], sorted[static_cast<std::size_t>(b)]) += 1;
        }
    }
  }

  void prepare(const UniformSample& s, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    begin_meeting(Q, K, scale);
    for (const index_t j : random_subset(s.keys, K.shape.rows, s.seed))
      for (index_t i = 0; i < Q.shape.rows; ++i) meets_(i, j) = 1;
  }

  static View<const T> row_of(const Matrix<T>& X, index_t i) {
    return {X.words.data() + i * X.shape.cols, {1, X.shape.cols}, X.shape.cols};
  }
  void begin_meeting(const Matrix<T>& Q, const Matrix<T>& K, T scale) {
    scores_ = product(Q, K.transposed(), block_);
    for (T& x : scores_.words) x *= scale;
    meets_ = Matrix<T>(scores_.shape);
  }
  /// These rows in the order of key(row), equal ones as they are.
  template <class Key>
  static std::vector<index_t> sorted_by(Range rows, const Key& key) {
    std::vector<std::pair<double, index_t>> pairs;
    pairs.reserve(static_cast<std::size_t>(rows.size()));
    for (index_t i = rows.begin; i < rows.end; ++i) pairs.emplace_back(key(i), i);
    std::sort(pairs.begin(), pairs.end());
    std::vector<index_t> sorted;
    sorted.reserve(pairs.size());
    for (const auto& [value, row] : pairs) sorted.push_back(row);
    return sorted;
  }
  /// Clusters of at most `size` keys, and of as many queries each as there are for it.
  void meet_in_clusters(const std::vector<index_t>& queries, const std::vector<index_t>& keys, index_t size) {
    const auto n_q = static_cast<index_t>(queries.size()), n_k = static_cast<index_t>(keys.size());
    const index_t clusters = (n_k + size - 1) / size;
    for (index_t t = 0; t < clusters; ++t)
      for (index_t a = t * n_q / clusters; a < (t + 1) * n_q / clusters; ++a)
        for (index_t b = t * n_k / clusters; b < (t + 1) * n_k / clusters; ++b)
          meets_(queries[static_cast<std::size_t>(a)], keys[static_cast<std::size_t>(b)]) += 1;
  }

  /// Keys that are chosen, and the weights by which they stand for all keys, block after block.
  void prepare(const Coreset& c, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    random_features_ = true;
    const index_t n_k = K.shape.rows;
    std::vector<index_t> coreset;
    T longest_q = 0, longest_k = 0;
    for (index_t i = 0; i < Q.shape.rows; ++i)
      longest_q = std::max(longest_q, std::sqrt(square_distance(Q, i, [](index_t) { return T(0); })));
    std::vector<std::vector<T>> weights;  // of each chosen key, on all keys
    for (index_t end = (n_k - 1) % c.block + 1, block = 0; end <= n_k; end += c.block, ++block) {
      std::vector<index_t> keys;  // the carried coreset, and the block
      std::vector<std::vector<T>> before;
      if (c.carried) {
        keys.swap(coreset);
        before.swap(weights);
      }
      for (index_t j = std::max<index_t>(0, end - c.block); j < end; ++j) {
        keys.push_back(j);
        longest_k = std::max(longest_k, std::sqrt(square_distance(K, j, [](index_t) { return T(0); })));
      }
      const T ratio = !c.balanced ? T(1) : longest_k > 0 ? longest_q / longest_k : T(0);
      const Reduced few = reduced(c, block, std::abs(scale) * ratio, K, keys);
      for (std::size_t p = 0; p < few.pivots.size(); ++p) {
        coreset.push_back(keys[few.pivots[p]]);
        std::vector<T>& w = weights.emplace_back(static_cast<std::size_t>(n_k), T(0));
        for (std::size_t i = 0; i < keys.size(); ++i) {
          const T share = few.W(static_cast<index_t>(p), static_cast<index_t>(i));
          if (i >= before.size()) w[static_cast<std::size_t>(keys[i])] = share;
          for (std::size_t j = 0; i < before.size() && j < static_cast<std::size_t>(end); ++j)
            w[j] += share * before[i][j];
        }
      }
      for (std::size_t p = few.pivots.size(); p < std::min(static_cast<std::size_t>(c.rank), keys.size()); ++p) {
        coreset.push_back(keys[few.pivots.front()]);  // in place of one that was not drawn
        weights.emplace_back(static_cast<std::size_t>(n_k), T(0));
      }
    }
    left_ = Matrix<T>({Q.shape.rows, static_cast<index_t>(coreset.size())});
    right_ = Matrix<T>({n_k, left_.shape.cols});
    for (index_t a = 0; a < left_.shape.cols; ++a) {
      for (index_t i = 0; i < Q.shape.rows; ++i)
        left_(i, a) = scale * sum<T>(Q.shape.cols, block_,
                                     [&](index_t t) { return Q(i, t) * K(coreset[static_cast<std::size_t>(a)], t); });
      for (index_t j = 0; j < n_k; ++j)
        right_(j, a) = weights[static_cast<std::size_t>(a)][static_cast<std::size_t>(j)];
    }
    for (index_t i = 0; i < Q.shape.rows; ++i) {
      T most = left_(i, 0);
      for (index_t a = 1; a < left_.shape.cols; ++a) most = std::max(most, left_(i, a));
      for (index_t a = 0; a < left_.shape.cols; ++a) left_(i, a) = std::exp(left_(i, a) - most);
    }
  }

  struct Reduced {
    std::vector<std::size_t> pivots;
    Matrix<T> W;  ///< a row for each pivot, a column for each key
  };
  /// By the sweep operator on the kernel of the keys: a swept pivot's row has what it stands for, the diagonal of the
  /// others what is left of them.
  Reduced reduced(const Coreset& c, index_t block, T kappa, const Matrix<T>& K,
                  const std::vector<index_t>& keys) const {
    const auto n = static_cast<index_t>(keys.size());
    const std::vector<T> mean = mean_of(K, keys);
    std::vector<T> length(keys.size());
    Matrix<T> H({n, n});
    for (index_t i = 0; i < n; ++i) {
      const index_t row = keys[static_cast<std::size_t>(i)];
      length[static_cast<std::size_t>(i)] =
          square_distance(K, row, [&](index_t t) { return mean[static_cast<std::size_t>(t)]; });
      for (index_t j = 0; j < n; ++j)
        H(i, j) = std::exp(-kappa / 2 *
                           square_distance(K, row, [&](index_t t) { return K(keys[static_cast<std::size_t>(j)], t); }));
    }
    std::vector<std::size_t> order(keys.size());  // first the pivots, then the others as they change places with them
    std::iota(order.begin(), order.end(), std::size_t{0});
    Reduced few;
    const T longest = *std::max_element(length.begin(), length.end());
    for (std::size_t p = 0; p < std::min(static_cast<std::size_t>(c.rank), keys.size()); ++p) {
      std::vector<T> share(keys.size(), T(0));
      const auto is_known = [&](std::size_t i) {  // NaN: nothing is left to draw, as in the kernel
        const auto row = static_cast<index_t>(order[i]);
        return p > 0 && !(H(row, row) > nudge_ * static_cast<T>(Coreset::kKnown));
      };
      for (std::size_t i = p; i < keys.size(); ++i)
        if (!is_known(i))
          share[i] = std::exp(kappa * (length[order[i]] - longest)) *
                     H(static_cast<index_t>(order[i]), static_cast<index_t>(order[i]));
      T up_to = nudge_ * static_cast<T>(pivot_draw(c.seed, block, static_cast<index_t>(p))) *
                sum<T>(n, n, [&](index_t i) { return share[static_cast<std::size_t>(i)]; });
      std::size_t s = keys.size();
      for (std::size_t i = p; i < keys.size(); ++i) {
        if (is_known(i)) continue;
        s = i;
        up_to -= share[i];
        if (up_to <= 0) break;
      }
      if (s == keys.size()) break;
      std::swap(order[p], order[s]);
      few.pivots.push_back(order[p]);
      sweep(H, static_cast<index_t>(order[p]));
    }
    few.W = Matrix<T>({static_cast<index_t>(few.pivots.size()), n});
    for (index_t p = 0; p < few.W.shape.rows; ++p) {
      const std::size_t pivot = few.pivots[static_cast<std::size_t>(p)];
      for (index_t i = 0; i < n; ++i) {
        const T stands_for = H(static_cast<index_t>(pivot), i);  // 0 stays 0 if the factor overflows
        const T by = std::exp(kappa / 2 * (length[static_cast<std::size_t>(i)] - length[pivot]));
        few.W(p, i) = stands_for == T(0) ? T(0) : stands_for * by;
      }
      for (std::size_t q = 0; q < few.pivots.size(); ++q)
        few.W(p, static_cast<index_t>(few.pivots[q])) = static_cast<std::size_t>(p) == q ? T(1) : T(0);
    }
    return few;
  }
  static void sweep(Matrix<T>& H, index_t s) {
    const index_t n = H.shape.rows;
    const T pivot = H(s, s);
    for (index_t j = 0; j < n; ++j) H(s, j) /= pivot;
    for (index_t i = 0; i < n; ++i) {
      if (i == s) continue;
      const T factor = H(i, s);
      for (index_t j = 0; j < n; ++j) H(i, j) -= factor * H(s, j);
      H(i, s) = -factor / pivot;
    }
    H(s, s) = 1 / pivot;
  }
  std::vector<T> mean_of(const Matrix<T>& K, const std::vector<index_t>& keys) const {
    const auto n = static_cast<index_t>(keys.size());
    std::vector<T> mean(static_cast<std::size_t>(K.shape.cols));
    for (index_t t = 0; t < K.shape.cols; ++t)
      mean[static_cast<std::size_t>(t)] =
          sum<T>(n, block_, [&](index_t i) { return K(keys[static_cast<std::size_t>(i)], t); }) / static_cast<T>(n);
    return mean;
  }
  template <class F>
  T square_distance(const Matrix<T>& A, index_t row, const F& from) const {
    return sum<T>(A.shape.cols, block_, [&](index_t t) { return (A(row, t) - from(t)) * (A(row, t) - from(t)); });
  }

  /// Row a has 1/size on segment a.
  static Matrix<T> means(index_t rank, index_t n) {
    Matrix<T> E({rank, n});
    for (index_t a = 0; a < rank; ++a) {
      const index_t begin = a * n / rank, end = (a + 1) * n / rank;
      for (index_t j = begin; j < end; ++j) E(a, j) = 1 / static_cast<T>(end - begin);
    }
    return E;
  }
  Matrix<T> softmax(const Matrix<T>& Q, const Matrix<T>& K, T scale) const {
    Matrix<T> S = product(Q, K.transposed(), block_);
    for (index_t i = 0; i < S.shape.rows; ++i) {
      T most = -std::numeric_limits<T>::infinity();
      for (index_t j = 0; j < S.shape.cols; ++j) most = std::max(most, scale * S(i, j));
      for (index_t j = 0; j < S.shape.cols; ++j) S(i, j) = std::exp(scale * S(i, j) - most);
      const T all = sum<T>(S.shape.cols, block_, [&](index_t j) { return S(i, j); });
      for (index_t j = 0; j < S.shape.cols; ++j) S(i, j) /= all;
    }
    return S;
  }
  /// Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4 from A^T / (|A|_1 |A|_inf).
  Matrix<T> pseudo_inverse(const Matrix<T>& A, index_t iterations) const {
    const index_t n = A.shape.rows;
    const auto largest_row = [&](const Matrix<T>& m) {
      T most = 0;
      for (index_t i = 0; i < n; ++i)
        most = std::max(most, sum<T>(n, block_, [&](index_t j) { return std::abs(m(i, j)); }));
      return most;
    };
    const auto less = [&](T c, Matrix<T> m) {  // c I - m
      for (T& x : m.words) x = -x;
      for (index_t i = 0; i < n; ++i) m(i, i) += c;
      return m;
    };
    Matrix<T> Z = A.transposed();
    const T norms = largest_row(A) * largest_row(Z);
    for (T& x : Z.words) x /= norms;
    for (index_t k = 0; k < iterations; ++k) {
      const Matrix<T> AZ = product(A, Z, block_);
      const Matrix<T> inner = less(15, product(AZ, less(7, AZ), block_));
      Z = product(Z, less(13, product(AZ, inner, block_)), block_);
      for (T& x : Z.words) x /= 4;
    }
    return Z;
  }

  Method method_;
  index_t block_ = 1;
  T nudge_ = 1;
  bool random_features_ = false;
  Matrix<T> left_, right_;  ///< n_q and n_k rows; weights are products of rows
  /// The queries that see a key, and the keys that a query sees.
  struct Core {
    Range queries, keys;
    bool causal = false;  ///< does a mask hide later keys?
  };
  Core core_;
  Matrix<T> scores_, meets_;  ///< of methods that choose pairs: how often each meets
};

}  // namespace redblue::oracle
