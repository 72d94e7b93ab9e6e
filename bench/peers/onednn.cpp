// Attention as oneDNN primitives on stripes of queries, all heads in one batch: matmul, softmax, matmul; backward five
// matmuls and the two softmax primitives. Causal stripes take the keys up to their last query.
#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <functional>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "peer.h"

namespace {

using dnnl::memory;
using Type = memory::data_type;

class Attention {
 public:
  Attention(const PeerCell& cell, long rows)
      : x_(cell),
        type_(cell.bf16 ? Type::bf16 : Type::f32),
        rows_(std::min(rows, cell.n)),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        s_(make(x_.heads, rows_ * x_.n, Type::f32)),
        p_(make(x_.heads, rows_ * x_.n, type_)),
        dp_(make(x_.backward ? x_.heads : 0, rows_ * x_.n, Type::f32)) {
    // The last stripe first: under a causal mask it alone has all keys, whose gradients the others then add to.
    for (long i = (x_.n - 1) / rows_ * rows_; i >= 0; i -= rows_) plan(i, std::min(rows_, x_.n - i));
  }

  void run(const PeerArrays& a) {
    const void* const data[] = {a.q, a.k, a.v, a.o, a.dO, a.dq, a.dk, a.dv};
    for (Operand& o : operands_)
      o.view.set_data_handle(const_cast<char*>(static_cast<const char*>(data[o.array])) + o.offset);
    for (const auto& step : steps_) step();
    stream_.wait();
  }

 private:
  enum Array { q, k, v, o, dO, dq, dk, dv };
  /// A part of an array that is given with each run.
  struct Operand {
    memory view;
    Array array;
    long offset;  ///< in bytes
  };

  memory make(long heads, long words, Type type) const {
    return memory({{heads, words}, type, memory::format_tag::ab}, engine_);
  }
  /// Rows [row, row + rows) of all heads.
  memory rows_of(Array array, long row, long rows, bool transposed = false) {
    const memory::desc lie({x_.heads, rows, x_.d}, type_, {x_.n * x_.d, x_.d, 1});
    operands_.push_back({memory(transposed ? lie.permute_axes({0, 2, 1}) : lie, engine_, nullptr), array,
                         row * x_.d * (x_.bf16 ? 2 : 4)});
    return operands_.back().view;
  }
  memory scores_in(const memory& buffer, Type type, long rows, long keys, bool transposed = false) const {
    const memory::desc lie({x_.heads, rows, keys}, type, {rows * keys, keys, 1});
    return memory(transposed ? lie.permute_axes({0, 2, 1}) : lie, engine_, buffer.get_data_handle());
  }

  void add(const dnnl::primitive& primitive, const std::unordered_map<int, memory>& arguments) {
    steps_.push_back([=, this] { primitive.execute(stream_, arguments); });
  }
  /// to (+)= factor a b
  void multiply(const memory& a, const memory& b, const memory& to, float factor, bool accumulate) {
    dnnl::primitive_attr attr;
    dnnl::post_ops after;
    if (factor != 1) attr.set_output_scales(0, {factor});
    if (accumulate) after.append_sum(1);
    attr.set_post_ops(after);
    const dnnl::matmul::primitive_desc desc({a.get_desc(), b.get_desc(), to.get_desc()}, attr, engine_);
    add(dnnl::matmul(desc), {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, to}});
  }
  /// -infinity where a query does not see one of the last `rows` keys. (A mask that matmul adds itself makes it 100
  /// times slower.)
  void hide(long rows, long keys) {
    steps_.push_back([=, this] {
      float* const s = static_cast<float*>(s_.get_data_handle());
      for (long row = 0; row < x_.heads * rows; ++row) {
        float* const end = s + (row + 1) * keys;
        std::fill(end - (rows - 1 - row % rows), end, -std::numeric_limits<float>::infinity());
      }
    });
  }

  /// The stripe of queries [i, i + rows).
  void plan(long i, long rows) {
    const long keys = x_.causal ? i + rows : x_.n;
    const float scale = 1 / std::sqrt(static_cast<float>(x_.d));
    const auto scores = [&](const memory& b, Type t, bool transposed = false) {
      return scores_in(b, t, rows, keys, transposed);
    };
    const memory queries = rows_of(q, i, rows), s = scores(s_, Type::f32), p = scores(p_, type_);
    multiply(queries, rows_of(k, 0, keys, true), s, scale, false);
    if (x_.causal) hide(rows, keys);
    const dnnl::softmax_v2_forward::primitive_desc softmax(
        {x_.backward ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
         dnnl::algorithm::softmax_accurate, s.get_desc(), p.get_desc(), 2},
        engine_);
    add(dnnl::softmax_v2_forward(softmax), {{DNNL_ARG_SRC, s}, {DNNL_ARG_DST, p}});
    if (!x_.backward) {
      multiply(p, rows_of(v, 0, keys), rows_of(o, i, rows), 1, false);
      return;
    }
    const bool later = i + rows < x_.n;
    const memory dp = scores(dp_, Type::f32);
    multiply(scores(p_, type_, true), rows_of(dO, i, rows), rows_of(dv, 0, keys), 1, later);
    multiply(rows_of(dO, i, rows), rows_of(v, 0, keys, true), dp, 1, false);
    const dnnl::softmax_v2_backward::primitive_desc gradient(
        {dnnl::algorithm::softmax_accurate, s.get_desc(), dp.get_desc(), p.get_desc(), 2}, engine_, softmax);
    add(dnnl::softmax_v2_backward(gradient), {{DNNL_ARG_DST, p}, {DNNL_ARG_DIFF_DST, dp}, {DNNL_ARG_DIFF_SRC, s}});
    multiply(s, rows_of(k, 0, keys), rows_of(dq, i, rows), scale, false);
    multiply(scores(s_, Type::f32, true), queries, rows_of(dk, 0, keys), scale, later);
  }

  PeerCell x_;
  Type type_;
  long rows_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  memory s_, p_, dp_;
  std::vector<Operand> operands_;
  std::vector<std::function<void()>> steps_;
};

constexpr long kStripes[] = {32, 128, 512, 2048};

}  // namespace

const char* peer_about() {
  static const auto* const v = dnnl::version();
  static const std::string text = "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
                                  std::to_string(v->patch) + ", isa " +
                                  std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
  return text.c_str();
}
int peer_variants(const PeerCell* cell) {
  if (cell->backward && cell->bf16) return 0;
  return cell->n > 512 ? 4 : 3;
}
const char* peer_variant_name(const PeerCell* cell, int variant) {
  static std::string name;
  return (name = "stripes of " + std::to_string(std::min(kStripes[variant], cell->n))).c_str();
}
void* peer_make(const PeerCell* cell, int variant) { return new Attention(*cell, kStripes[variant]); }
void peer_run(void* made, const PeerArrays* arrays) { static_cast<Attention*>(made)->run(*arrays); }
void peer_free(void* made) { delete static_cast<Attention*>(made); }
