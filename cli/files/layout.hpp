#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "redblue/files/tensor_file.hpp"
#include "redblue/language/dimensions.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue::cli {

/// The order of the dimensions of the tensors in a file, in the letters of Dimensions. lse has no d.
class FileLayout {
 public:
  /// Throws InvalidProblem for a name that is none of Dimensions.
  explicit FileLayout(const std::string& name);
  /// The layout that tensors of this rank have where none is named: bhnd, hnd or nd. Throws InvalidProblem for another
  /// rank; `tensor` is for its message.
  static FileLayout of_rank(std::size_t rank, const std::string& tensor);

  const std::string& name() const { return order_.letters(); }
  bool has_heads() const { return order_.has_heads(); }
  bool tokens_first() const { return order_.tokens_first(); }
  /// As [batch, heads, rows, columns]. Throws InvalidProblem where the number of dimensions is wrong.
  Tensor view(SlowArray array, const file::Tensor& t) const;
  /// The shape in a file of a tensor [batch, heads, rows, columns].
  std::vector<index_t> shape_in_file(SlowArray array, const std::array<index_t, 4>& shape) const;
  /// A view of `data`, which is contiguous in the order of the file.
  Tensor contiguous(std::byte* data, DType dtype, const std::array<index_t, 4>& shape) const;

 private:
  std::string letters_of(SlowArray array) const;
  Dimensions order_;
};

/// q and k, read with heads before tokens because no layout is named: throws InvalidProblem unless the shapes can only
/// mean that, or look like that: more tokens than heads, and no more queries than keys where q has as many heads as k.
/// The tensors of PyTorch's attention are [batch, heads, tokens, features], those of flash-attention and JAX [batch,
/// tokens, heads, features].
void require_clear_layout(const FileLayout& layout, const Tensor& q, const Tensor& k);

/// All entries of a tensor in memory, in the order of its dimensions.
std::vector<double> numbers_of(const Tensor& t);

/// Do two tensors have the same shape and the same numbers, whatever their types?
bool same_numbers(const Tensor& a, const Tensor& b);

/// The entries of a tensor, to one of the same shape and type.
void copy(const Tensor& from, const Tensor& to);

}  // namespace redblue::cli
