#include "tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>

#include "redblue/file/atomic_file.hpp"
#include "redblue/file/npy.hpp"
#include "redblue/file/safetensors.hpp"

namespace redblue::cli {

namespace {

const std::array<std::string, 5> kTensorNames = {"q", "k", "v", "o", "lse"};

/// [n, d] and [heads, n, d] become [1, 1, n, d] and [1, heads, n, d].
Tensor view(const std::string& name, const file::Tensor& t) {
  if (t.rank() < 2 || t.rank() > 4)
    throw InvalidProblem(fmt::format("{} has {} dimensions [{}]: give [n, d], [heads, n, d] or [batch, heads, n, d]",
                                     name, t.rank(), fmt::join(t.shape(), ", ")));
  std::array<index_t, 4> shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
  const std::size_t missing = 4 - t.shape().size();
  std::copy(t.shape().begin(), t.shape().end(), shape.begin() + static_cast<std::ptrdiff_t>(missing));
  std::copy(t.strides().begin(), t.strides().end(), strides.begin() + static_cast<std::ptrdiff_t>(missing));
  // Inputs are never written; Tensor serves outputs too, hence the cast.
  return {const_cast<std::byte*>(t.data()), t.dtype(), shape, strides};
}

/// The leading dimensions that q had, without `dropped` trailing ones.
file::FileTensor output_tensor(DType dtype, std::vector<index_t> bhsd, std::size_t rank, bool drop_last,
                               const void* data) {
  bhsd.erase(bhsd.begin(), bhsd.begin() + static_cast<std::ptrdiff_t>(4 - rank));
  if (drop_last) bhsd.pop_back();
  return file::c_order_tensor(dtype, std::move(bhsd), data);
}

std::size_t bytes_of(const Problem& p, index_t features, DType dtype) {
  const Words words = Words(p.batch) * p.heads * p.n_q * features;
  return static_cast<std::size_t>((words * size_of(dtype)).to_index());
}

}  // namespace

void FileOptions::validate() const {
  const bool npy = q || k || v || o || lse;
  if (npy && (input || output))
    throw InvalidProblem("give either --input and --output (safetensors) or --q --k --v --o [--lse] (npy), not both");
  if (!npy && !(input && output))
    throw InvalidProblem(
        "files are missing: give --input X.safetensors --output Y.safetensors, or --q --k --v --o [--lse] as .npy "
        "files");
  if (npy && !(q && k && v && o)) throw InvalidProblem("files are missing: .npy runs need all of --q --k --v --o");
  if (npy && !names.empty())
    throw InvalidProblem(fmt::format("--name {}: .npy files hold one tensor without a name", names[0]));
  std::set<std::string> named;
  for (const std::string& n : names) {
    const std::size_t equals = n.find('=');
    if (!named.insert(n.substr(0, equals)).second)
      throw InvalidProblem(fmt::format("--name {}: {} has a name already", n, n.substr(0, equals)));
    if (equals == std::string::npos || equals + 1 == n.size() ||
        std::find(kTensorNames.begin(), kTensorNames.end(), n.substr(0, equals)) == kTensorNames.end())
      throw InvalidProblem(
          fmt::format("--name {}: give TENSOR=NAME with TENSOR one of {}", n, fmt::join(kTensorNames, ", ")));
  }
  std::vector<std::string> in, out;
  for (const auto& f : {input, q, k, v})
    if (f) in.push_back(*f);
  for (const auto& f : {output, o, lse})
    if (f) out.push_back(*f);
  for (const std::string& to : out)
    for (const std::string& from : in)
      if (file::same_file(from, to))
        throw InvalidProblem(fmt::format("output {} is also an input: choose another output file", to));
  if (o && lse && file::same_file(*o, *lse))
    throw InvalidProblem(fmt::format("--o and --lse are the same file {}: choose two", *o));
}

std::string FileOptions::name_of(const std::string& tensor) const {
  for (const std::string& n : names)
    if (n.starts_with(tensor + "=")) return n.substr(tensor.size() + 1);
  return tensor;
}

Inputs LoadedInputs::views() const { return {view("q", q), view("k", k), view("v", v)}; }

LoadedInputs load_inputs(const FileOptions& files) {
  const auto loaded = [](file::Tensor q, file::Tensor k, file::Tensor v) {
    const auto rank = static_cast<std::size_t>(q.rank());
    if (k.rank() != q.rank() || v.rank() != q.rank())
      throw InvalidProblem(
          fmt::format("q [{}], k [{}] and v [{}] have different numbers of dimensions: give all three the same",
                      fmt::join(q.shape(), ", "), fmt::join(k.shape(), ", "), fmt::join(v.shape(), ", ")));
    return LoadedInputs{std::move(q), std::move(k), std::move(v), rank};
  };
  if (files.input) {
    const file::Safetensors s = file::read_safetensors(*files.input);
    return loaded(s.tensor(files.name_of("q")), s.tensor(files.name_of("k")), s.tensor(files.name_of("v")));
  }
  return loaded(file::read_npy(*files.q), file::read_npy(*files.k), file::read_npy(*files.v));
}

struct OutputFiles::Files {
  explicit Files(const FileOptions& f) : options(f), first(f.output ? *f.output : *f.o) {
    if (f.lse) second.emplace(*f.lse);
  }
  FileOptions options;
  file::AtomicFile first;
  std::optional<file::AtomicFile> second;
};

OutputFiles::OutputFiles(const FileOptions& files, const Problem& p, DType o_dtype, DType lse_dtype, std::size_t rank)
    : files_(std::make_unique<Files>(files)), o_(bytes_of(p, p.d_v, o_dtype)), lse_(bytes_of(p, 1, lse_dtype)) {
  o_tensor_ = output_tensor(o_dtype, {p.batch, p.heads, p.n_q, p.d_v}, rank, false, o_.data());
  lse_tensor_ = output_tensor(lse_dtype, {p.batch, p.heads, p.n_q, 1}, rank, true, lse_.data());
  views_.o = Tensor(o_.data(), o_dtype, {p.batch, p.heads, p.n_q, p.d_v});
  if (files.output || files.lse) views_.lse = Tensor(lse_.data(), lse_dtype, {p.batch, p.heads, p.n_q, 1});
}

OutputFiles::~OutputFiles() = default;

void OutputFiles::commit() {
  if (files_->options.output) {
    file::write_safetensors(files_->first,
                            {{files_->options.name_of("o"), o_tensor_}, {files_->options.name_of("lse"), lse_tensor_}});
  } else {
    file::write_npy(files_->first, o_tensor_);
    if (files_->second) file::write_npy(*files_->second, lse_tensor_);
  }
  files_->first.commit();
  if (files_->second) files_->second->commit();
}

}  // namespace redblue::cli
