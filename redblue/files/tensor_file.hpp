#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "redblue/language/dtype.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/types.hpp"

namespace redblue::file {

/// A tensor as it lies in a file's bytes or in the caller's memory. Owns no data.
struct FileTensor {
  DType dtype = DType::f32;
  std::vector<index_t> shape;    ///< outermost dimension first; empty for a scalar
  std::vector<index_t> strides;  ///< in elements, one per dimension; never negative in a file
  const std::byte* data = nullptr;
  bool swap_bytes = false;  ///< the elements have the other byte order than this machine

  /// Number of elements: the product of the shape, 1 for a scalar. Throws InvalidProblem if negative or above 2^63.
  index_t size() const;
  /// Size of the elements in bytes, under the same conditions.
  index_t size_bytes() const;
};

/// Row-major strides in elements. The shape must have passed element_count().
std::vector<index_t> c_order_strides(std::span<const index_t> shape);
/// Column-major strides in elements. The shape must have passed element_count().
std::vector<index_t> fortran_order_strides(std::span<const index_t> shape);

/// Product of the shape, if no dimension is negative and the product of the dimensions that are not zero, times
/// `element_bytes`, fits 63 bits (so that sizes, strides and byte offsets all do).
std::optional<index_t> element_count(std::span<const index_t> shape, index_t element_bytes);

/// A row-major tensor in memory, to be handed to a writer: {dtype, shape, row-major strides, data}.
/// Throws InvalidProblem for an impossible shape.
FileTensor c_order_tensor(DType dtype, std::vector<index_t> shape, const void* data);

/// A tensor ready to compute on: it has this machine's byte order, is aligned to its element, and its data stays valid
/// as long as any copy of this object exists. The data is the mapped file where possible, else a converted copy
/// (big-endian or misaligned data).
class Tensor {
 public:
  /// `in_file` covers a dense range of `size()` elements (row-major, column-major, any permutation).
  /// `keeps_alive` owns the bytes; null if the caller keeps them valid.
  Tensor(const FileTensor& in_file, std::shared_ptr<const void> keeps_alive);

  DType dtype() const { return view_.dtype; }
  const std::vector<index_t>& shape() const { return view_.shape; }
  const std::vector<index_t>& strides() const { return view_.strides; }  ///< in elements
  index_t rank() const { return static_cast<index_t>(view_.shape.size()); }
  index_t size() const { return view_.size(); }
  const std::byte* data() const { return view_.data; }
  /// The same tensor for a writer; valid while this object lives.
  const FileTensor& view() const { return view_; }
  /// Was the data converted into a copy? (Else it lies in the file.)
  bool copied() const { return copied_; }

  /// The first element, as double (f64), float (f32) or std::uint16_t (the bits of f16 or bf16).
  /// Throws Unsupported when the tensor holds something else.
  template <class T>
  const T* as() const {
    static_assert(std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, std::uint16_t>);
    const bool fits = std::is_same_v<T, double>  ? dtype() == DType::f64
                      : std::is_same_v<T, float> ? dtype() == DType::f32
                                                 : size_of(dtype()) == 2;
    if (!fits) throw_dtype_mismatch(sizeof(T));
    return reinterpret_cast<const T*>(view_.data);
  }

 private:
  [[noreturn]] void throw_dtype_mismatch(std::size_t wanted_bytes) const;

  FileTensor view_;
  std::shared_ptr<const void> owner_;
  bool copied_ = false;
};

}  // namespace redblue::file
