#include "redblue/c_api/tensors.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>

#include "redblue/c_api/calls.hpp"
#include "redblue/c_api/structs.hpp"

namespace redblue::c_api {
namespace {

/// C or const C tensor.
template <class T>
Tensor c_tensor(const T& t, const std::array<index_t, 4>& shape, SlowArray name) {
  const DType dtype = dtype_of(t.dtype, "dtype");
  auto* data = const_cast<void*>(static_cast<const void*>(t.data));  // what is an input is never written
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0)
    throw InvalidArgument(
        fmt::format("tensor {} is not aligned to its elements ({})", tensor_name(name), name_of(dtype)));
  const int64_t* s = t.strides;
  if (s[0] == 0 && s[1] == 0 && s[2] == 0 && s[3] == 0) return {data, dtype, shape};
  index_t reach = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    index_t last = 0;
    if (s[i] == INT64_MIN || __builtin_mul_overflow(shape[i] - 1, std::abs(s[i]), &last) ||
        __builtin_add_overflow(reach, last, &reach) || reach >= index_t{1} << 60)
      throw InvalidArgument(fmt::format("stride {} of tensor {} is too large", s[i], tensor_name(name)));
  }
  return {data, dtype, shape, {s[0], s[1], s[2], s[3]}};
}

struct NamedCTensor {
  SlowArray array;
  const redblue_const_tensor* input;  // one of the two
  const redblue_tensor* output;
};

/// The tensors of these lists.
template <class... Lists>
Tensors list_of_c_tensors(const Problem& p, const Lists&... lists) {
  const Shapes shapes(p);
  Tensors result;
  const auto add = [&](const auto& list) {
    for (const auto& [array, input, output] : list) {
      const auto shape = shapes[array];
      result[array] = input != nullptr ? tensor_of(*input, shape, array) : tensor_of(*output, shape, array);
    }
  };
  (add(lists), ...);
  return result;
}

/// What every operation that follows a forward pass reads of it.
template <class T>
std::array<NamedCTensor, 8> of_forward(const T& t) {
  return {{{SlowArray::Q, &t.q, nullptr},
           {SlowArray::K, &t.k, nullptr},
           {SlowArray::V, &t.v, nullptr},
           {SlowArray::O, &t.o, nullptr},
           {SlowArray::lse, &t.lse, nullptr},
           {SlowArray::bias, &t.bias, nullptr},
           {SlowArray::slopes, &t.slopes, nullptr},
           {SlowArray::sinks, &t.sinks, nullptr}}};
}

}  // namespace

Tensor tensor_of(const redblue_tensor& t, const std::array<index_t, 4>& shape, SlowArray name) {
  return c_tensor(t, shape, name);
}
Tensor tensor_of(const redblue_const_tensor& t, const std::array<index_t, 4>& shape, SlowArray name) {
  return c_tensor(t, shape, name);
}

Tensors tensors_of(const Problem& p, const redblue_forward_tensors& t) {
  return with_scales(t, list_of_c_tensors(p, std::to_array<NamedCTensor>({{SlowArray::Q, &t.q, nullptr},
                                                                          {SlowArray::K, &t.k, nullptr},
                                                                          {SlowArray::V, &t.v, nullptr},
                                                                          {SlowArray::O, nullptr, &t.o},
                                                                          {SlowArray::lse, nullptr, &t.lse},
                                                                          {SlowArray::bias, &t.bias, nullptr},
                                                                          {SlowArray::slopes, &t.slopes, nullptr},
                                                                          {SlowArray::sinks, &t.sinks, nullptr}})));
}

Tensors tensors_of(const Problem& p, const redblue_backward_tensors& t) {
  return list_of_c_tensors(p, of_forward(t),
                           std::to_array<NamedCTensor>({{SlowArray::dO, &t.d_o, nullptr},
                                                        {SlowArray::dlse, &t.dlse, nullptr},
                                                        {SlowArray::dQ, nullptr, &t.dq},
                                                        {SlowArray::dK, nullptr, &t.dk},
                                                        {SlowArray::dV, nullptr, &t.dv},
                                                        {SlowArray::dBias, nullptr, &t.dbias},
                                                        {SlowArray::dSinks, nullptr, &t.dsinks}}));
}

Tensors tensors_of(const Problem& p, const redblue_tangent_tensors& t) {
  return list_of_c_tensors(p, of_forward(t),
                           std::to_array<NamedCTensor>({{SlowArray::tQ, &t.tq, nullptr},
                                                        {SlowArray::tK, &t.tk, nullptr},
                                                        {SlowArray::tV, &t.tv, nullptr},
                                                        {SlowArray::tBias, &t.tbias, nullptr},
                                                        {SlowArray::tSinks, &t.tsinks, nullptr},
                                                        {SlowArray::tO, nullptr, &t.to},
                                                        {SlowArray::tlse, nullptr, &t.tlse}}));
}

Tensors tensors_of(const Problem& p, const redblue_second_tensors& t) {
  return list_of_c_tensors(p, of_forward(t),
                           std::to_array<NamedCTensor>({{SlowArray::dO, &t.d_o, nullptr},
                                                        {SlowArray::dlse, &t.dlse, nullptr},
                                                        {SlowArray::gQ, &t.gq, nullptr},
                                                        {SlowArray::gK, &t.gk, nullptr},
                                                        {SlowArray::gV, &t.gv, nullptr},
                                                        {SlowArray::gBias, &t.gbias, nullptr},
                                                        {SlowArray::gSinks, &t.gsinks, nullptr},
                                                        {SlowArray::LQ, nullptr, &t.lq},
                                                        {SlowArray::LK, nullptr, &t.lk},
                                                        {SlowArray::LV, nullptr, &t.lv},
                                                        {SlowArray::LdO, nullptr, &t.ld_o},
                                                        {SlowArray::Ldlse, nullptr, &t.ldlse},
                                                        {SlowArray::LBias, nullptr, &t.lbias},
                                                        {SlowArray::LSinks, nullptr, &t.lsinks}}));
}

Tensors tensors_of(const Problem& p, const redblue_scores_tensors& t) {
  const bool weights = p.op == Operation::weights;
  Tensors result =
      list_of_c_tensors(p, std::to_array<NamedCTensor>({{SlowArray::Q, &t.q, nullptr},
                                                        {SlowArray::K, &t.k, nullptr},
                                                        {weights ? SlowArray::P : SlowArray::S, nullptr, &t.s},
                                                        {SlowArray::bias, &t.bias, nullptr},
                                                        {SlowArray::slopes, &t.slopes, nullptr}}));
  if (weights) result[SlowArray::lse] = tensor_of(t.lse, shape_of(p, SlowArray::lse), SlowArray::lse);
  return result;
}

}  // namespace redblue::c_api
