// Attention and its gradients as loops over blocks of scores, the products left to a library. What a careful user of
// that library writes: nothing n x n stored unless the blocks say so, no work above the causal diagonal but in the
// blocks across it, softmax in one vectorised pass after the maximum.
#pragma once
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "peer.h"

namespace peer {

/// Floats on cache lines of their own.
class Buffer {
 public:
  explicit Buffer(long n)
      : data_(static_cast<float*>(::operator new[](sizeof(float) * static_cast<std::size_t>(n), kLine))) {
    std::fill_n(data_, n, 0.0F);
  }
  ~Buffer() { ::operator delete[](data_, kLine); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  float* get() const { return data_; }

 private:
  static constexpr std::align_val_t kLine{64};
  float* data_;
};

/// 2^x, relative error 2e-7; vectorised by the compiler.
inline float exp2_of(float x) {
  x = std::max(x, -126.0F);
  const float n = std::nearbyint(x), r = x - n;
  float p = 0.0013390863364671234F;
  p = p * r + 0.009676031918322054F;
  p = p * r + 0.05550357114219078F;
  p = p * r + 0.2402210748530834F;
  p = p * r + 0.6931471880262288F;
  p = p * r + 1.0000000754548972F;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + (static_cast<std::int32_t>(n) << 23));
}

inline float max_of(const float* x, long n) {
  float m = x[0];
#pragma omp simd reduction(max : m)
  for (long j = 0; j < n; ++j) m = std::max(m, x[j]);
  return m;
}

/// x <- 2^(x s - m), and its sum.
inline float exponentials(float* x, long n, float s, float m) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (long j = 0; j < n; ++j) {
    x[j] = exp2_of(x[j] * s - m);
    sum += x[j];
  }
  return sum;
}

inline constexpr float kLog2E = 1.4426950408889634F;

/// Queries and keys of one block of scores.
struct Blocks {
  long queries, keys;
};

/// Gemm: what a library must do, row-major with leading dimensions:
///   keys_of(k, rows, d, to)                      k [rows, d] as scores() wants it; `to` has room for it; returns where
///   scores(s, lds, q, k', rows, keys, d)         s = q k^T, for k' = keys_of(k)
///   accumulate(c, a, lda, b, m, n, k, first)     c [m, n] (+)= a [m, k] b [k, n]
///   accumulate_transposed(c, a, lda, b, m, n, k) c [m, n] += a^T b, a [k, m], b [k, n]
template <class Gemm>
class Loops {
 public:
  Loops(const PeerCell& cell, Blocks blocks)
      : x_(cell), b_{std::min(blocks.queries, cell.n), std::min(blocks.keys, cell.n)} {
    const long nd = x_.n * x_.d;
    for (int t = 0; t < x_.threads; ++t) own_.push_back(std::make_unique<Own>(x_.backward, b_, nd, x_.n));
  }

  void run(const PeerArrays& a) {
    const long nd = x_.n * x_.d;
#pragma omp parallel for schedule(dynamic) num_threads(x_.threads)
    for (long h = 0; h < x_.heads; ++h) {
      const auto at = [&](const void* p) { return static_cast<const float*>(p) + h * nd; };
      float* const o = static_cast<float*>(a.o) + h * nd;
      Own& own = *own_[static_cast<std::size_t>(omp_get_thread_num())];
      if (x_.backward)
        backward(own, at(a.q), at(a.k), at(a.v), o, a.lse + h * x_.n, at(a.dO), a.dq + h * nd, a.dk + h * nd,
                 a.dv + h * nd);
      else
        forward(own, at(a.q), at(a.k), at(a.v), o);
    }
  }

 private:
  struct Own {
    Buffer s, dp, kt, vt, max, sum, delta;
    Own(bool backward, Blocks b, long nd, long n)
        : s(b.queries * b.keys),
          dp(backward ? b.queries * b.keys : 1),
          kt(nd),
          vt(backward ? nd : 1),
          max(b.queries),
          sum(b.queries),
          delta(backward ? n : 1) {}
  };

  /// How many of the keys [j, j + keys) query i sees.
  long visible(long i, long j, long keys) const { return x_.causal ? std::clamp(i + 1 - j, 0L, keys) : keys; }
  /// f(first key, keys) for the blocks that some of the queries up to `last` sees.
  template <class F>
  void each_key_block(long last, const F& f) const {
    const long end = x_.causal ? std::min(x_.n, last + 1) : x_.n;
    for (long j = 0; j < end; j += b_.keys) f(j, std::min(b_.keys, x_.n - j));
  }
  template <class F>
  void each_query_block(const F& f) const {
    for (long i = 0; i < x_.n; i += b_.queries) f(i, std::min(b_.queries, x_.n - i));
  }
  /// Keys, or values, of all blocks as the products want them.
  std::vector<const float*> prepared(const float* k, float* to) const {
    std::vector<const float*> list;
    for (long j = 0; j < x_.n; j += b_.keys)
      list.push_back(Gemm::keys_of(k + j * x_.d, std::min(b_.keys, x_.n - j), x_.d, to + j * x_.d));
    return list;
  }
  float scale() const { return kLog2E / std::sqrt(static_cast<float>(x_.d)); }

  void forward(Own& own, const float* q, const float* k, const float* v, float* o) const {
    const long d = x_.d, ld = b_.keys;
    const auto keys = prepared(k, own.kt.get());
    float *const s = own.s.get(), *const max = own.max.get(), *const sum = own.sum.get();
    each_query_block([&](long i, long rows) {
      each_key_block(i + rows - 1, [&](long j, long cols) {
        Gemm::scores(s, ld, q + i * d, keys[static_cast<std::size_t>(j / b_.keys)], rows, cols, d);
        for (long r = 0; r < rows; ++r) {
          float *const row = s + r * ld, *const o_row = o + (i + r) * d;
          const long seen = visible(i + r, j, cols);
          if (seen == 0) {  // of a later block than the diagonal's, whose first row sees it
            std::fill_n(row, cols, 0.0F);
            continue;
          }
          const float m = max_of(row, seen) * scale(), m_new = j == 0 ? m : std::max(m, max[r]);
          const float total = exponentials(row, seen, scale(), m_new);
          std::fill_n(row + seen, cols - seen, 0.0F);
          if (j == 0) {
            sum[r] = total;
          } else {
            const float corr = std::exp2(max[r] - m_new);
            sum[r] = sum[r] * corr + total;
            if (corr != 1)
              for (long f = 0; f < d; ++f) o_row[f] *= corr;
          }
          max[r] = m_new;
        }
        Gemm::accumulate(o + i * d, s, ld, v + j * d, rows, d, cols, j == 0);
      });
      for (long r = 0; r < rows; ++r) {
        const float inverse = 1 / sum[r];
        for (long f = 0; f < d; ++f) o[(i + r) * d + f] *= inverse;
      }
    });
  }

  void backward(Own& own, const float* q, const float* k, const float* v, const float* o, const float* lse,
                const float* dO, float* dq, float* dk, float* dv) const {
    const long n = x_.n, d = x_.d, ld = b_.keys;
    const auto keys = prepared(k, own.kt.get()), values = prepared(v, own.vt.get());
    float *const p = own.s.get(), *const dp = own.dp.get(), *const delta = own.delta.get();
    const float factor = 1 / std::sqrt(static_cast<float>(d));
    std::fill_n(dk, n * d, 0.0F);
    std::fill_n(dv, n * d, 0.0F);
    for (long i = 0; i < n; ++i) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (long f = 0; f < d; ++f) sum += dO[i * d + f] * o[i * d + f];
      delta[i] = sum;
    }
    each_query_block([&](long i, long rows) {
      each_key_block(i + rows - 1, [&](long j, long cols) {
        const auto block = static_cast<std::size_t>(j / b_.keys);
        Gemm::scores(p, ld, q + i * d, keys[block], rows, cols, d);
        Gemm::scores(dp, ld, dO + i * d, values[block], rows, cols, d);
        for (long r = 0; r < rows; ++r) {
          float *const w = p + r * ld, *const ds = dp + r * ld;
          const long seen = visible(i + r, j, cols);
          const float m = lse[i + r] * kLog2E, D = delta[i + r], s = scale();
#pragma omp simd
          for (long c = 0; c < seen; ++c) {
            w[c] = exp2_of(w[c] * s - m);
            ds[c] = w[c] * (ds[c] - D) * factor;
          }
          std::fill_n(w + seen, cols - seen, 0.0F);
          std::fill_n(ds + seen, cols - seen, 0.0F);
        }
        Gemm::accumulate_transposed(dv + j * d, p, ld, dO + i * d, cols, d, rows);
        Gemm::accumulate_transposed(dk + j * d, dp, ld, q + i * d, cols, d, rows);
        Gemm::accumulate(dq + i * d, dp, ld, k + j * d, rows, d, cols, j == 0);
      });
    });
  }

  PeerCell x_;
  Blocks b_;
  std::vector<std::unique_ptr<Own>> own_;
};

/// As many as there are.
inline constexpr long kAll = 1L << 40;

inline std::string name_of(Blocks b) {
  const auto text = [](long n) { return n >= kAll ? std::string("n") : std::to_string(n); };
  return text(b.queries) + "x" + text(b.keys);
}

}  // namespace peer
