#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "redblue/kernels/implementations.hpp"
#include "redblue/machines/ram/storage.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue {

/// Arrays in the order in which a pattern takes their queries or keys, a bias in both: inputs are gathered before the
/// schedule runs, outputs scattered afterwards.
class Reordered {
 public:
  Reordered(const Problem& p, std::shared_ptr<const Sequences> sequences)
      : kv_heads_(p.kv_heads.value_or(p.heads)), sequences_(std::move(sequences)) {}

  /// Does anything move?
  bool any() const { return sequences_ != nullptr && sequences_->reordered(); }
  bool moves(SlowArray a) const { return any() && (side_of(a) != Side::neither || is_like_bias(a)); }
  void gather_later(SlowArray a, const Tensor& from, const Tensor& to) { inputs_.push_back({a, from, to}); }
  void scatter_later(SlowArray a, const Tensor& from, const Tensor& to) { outputs_.push_back({a, from, to}); }

  void gather(ThreadPool& pool, int workers) const {
    for (const Move& m : inputs_) {
      const std::size_t width = size_of(m.from.dtype), cols = static_cast<std::size_t>(m.from.shape[3]);
      const bool whole_rows = !is_like_bias(m.array) && m.from.strides[3] == 1;
      for_rows(pool, workers, m, [&](index_t instance, index_t place, index_t row, const auto& column) {
        const auto at = [&](const Tensor& t, index_t r) {
          const index_t B = instance / t.shape[1], H = instance % t.shape[1];
          return static_cast<std::byte*>(t.data) +
                 (B * t.strides[0] + H * t.strides[1] + r * t.strides[2]) * static_cast<index_t>(width);
        };
        const std::byte* from = at(m.from, row);
        std::byte* to = at(m.to, place);
        if (whole_rows) return void(std::memcpy(to, from, cols * width));
        for (index_t t = 0; t < m.from.shape[3]; ++t)
          std::memcpy(to + t * static_cast<index_t>(width),
                      from + column(t) * m.from.strides[3] * static_cast<index_t>(width), width);
      });
    }
  }
  template <class T>
  void scatter(ThreadPool& pool, int workers) const {
    for (const Move& m : outputs_) {
      const machine::Storage target = storage_of(m.to, m.to.shape[1], 1, true);
      const index_t rows = m.to.shape[2], cols = m.to.shape[3];
      const kernel::RowConversion<T> row_conversion = kernel::implementations<T>(best_isa()).row_conversion;
      for_rows(pool, workers, m, [&](index_t instance, index_t place, index_t row, const auto& column) {
        const T* words = static_cast<const T*>(m.from.data) + (instance * rows + place) * cols;
        if (!is_like_bias(m.array))
          return machine::scatter<T>(target, {m.array, instance, row, 0, {1, cols}}, words, cols, 1, row_conversion);
        for (index_t t = 0; t < cols; ++t)
          machine::scatter<T>(target, {m.array, instance, row, column(t), {1, 1}}, words + t, 1, 1);
      });
    }
  }

 private:
  struct Move {
    SlowArray array;
    Tensor from, to;
  };
  /// f(batch and head, place in the order, row of the caller's array, column(place) of the caller's array). What all
  /// share of a bias stays. Workers share the heads.
  template <class F>
  void for_rows(ThreadPool& pool, int workers, const Move& m, const F& f) const {
    const index_t instances = m.from.shape[0] * m.from.shape[1];
    pool.run(workers, [&](int worker) {
      for (index_t i = worker; i < instances; i += workers) for_rows_of(i, m, f);
    });
  }
  template <class F>
  void for_rows_of(index_t i, const Move& m, const F& f) const {
    const auto [batch, heads, rows, cols] = m.from.shape;
    const index_t group = std::max<index_t>(heads / kv_heads_, 1);
    const Order* order = sequences_->order_of(i / heads * kv_heads_ + i % heads / group, kv_heads_);
    const auto in = [order](bool moves, std::vector<index_t> Order::* list) {
      return [to = moves && order != nullptr ? &(order->*list) : nullptr](index_t place) {
        return to == nullptr ? place : (*to)[static_cast<std::size_t>(place)];
      };
    };
    const auto row = in(!is_like_bias(m.array) || rows > 1,
                        side_of(m.array) == Side::keys ? &Order::keys : &Order::queries),
               column = in(is_like_bias(m.array) && cols > 1, &Order::keys);
    for (index_t place = 0; place < rows; ++place) f(i, place, row(place), column);
  }

  index_t kv_heads_;
  std::shared_ptr<const Sequences> sequences_;
  std::vector<Move> inputs_, outputs_;
};

}  // namespace redblue
