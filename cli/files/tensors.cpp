#include "files/tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <list>
#include <memory>
#include <set>

#include "files/open_archive.hpp"
#include "files/unused.hpp"
#include "redblue/files/atomic_file.hpp"
#include "redblue/files/npy.hpp"

namespace redblue::cli {

namespace {

/// A bias, or its direction, with up to four dimensions, the last of them keys; slopes, sinks or their direction with
/// one, heads.
Tensor view_of_modifier(SlowArray a, const file::Tensor& t) {
  const std::size_t rank = t.shape().size();
  const bool heads = is_of_heads(a);
  const bool fits = heads ? rank == 1 || rank == 4 : rank >= 1 && rank <= 4;
  if (!fits)
    throw InvalidProblem(fmt::format("{} is [{}]: give {}", tensor_name(a), fmt::join(t.shape(), ", "),
                                     heads ? "[heads]" : "[batch, heads, n_q, n_k] or the last of these dimensions"));
  std::array<index_t, 4> shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
  const std::size_t first = heads && rank == 1 ? 1 : 4 - rank;
  for (std::size_t k = 0; k < rank; ++k) {
    shape[first + k] = t.shape()[k];
    strides[first + k] = t.strides()[k];
  }
  return {const_cast<std::byte*>(t.data()), t.dtype(), shape, strides};
}

/// Sizes from shapes.
void set_sizes(Problem& p, const Tensors& t) {
  const auto shape = [&](SlowArray a) { return t[a].shape; };
  if (p.op == Operation::merge) {
    const auto [batch, heads, rows, cols] = shape(SlowArray::Og);
    p.batch = batch, p.heads = heads, p.n_q = rows, p.d_v = cols;
    p.n_k = p.d = 1;  // it has none
    return;
  }
  const SlowArray first = is_projected(p.op) ? SlowArray::A1 : SlowArray::Q;
  p.batch = shape(first)[0];
  p.heads = shape(first)[1];
  p.n_q = shape(first)[2];
  if (!is_projected(p.op)) {
    p.kv_heads = shape(SlowArray::K)[1];
    p.n_k = shape(SlowArray::K)[2];
    p.d = shape(SlowArray::Q)[3];
    p.d_v = is_of_pairs(p.op) ? p.d : shape(SlowArray::V)[3];
    return;
  }
  p.n_k = shape(p.sources == Sources::self ? SlowArray::A1 : SlowArray::A2)[2];
  if (p.op == Operation::backward_w) {
    p.d_in = shape(SlowArray::A1)[3];
    p.d = shape(SlowArray::WQ)[3];
    p.d_v = shape(SlowArray::WV)[3];
  } else {
    p.d = shape(SlowArray::X)[3];
    p.d_v = shape(SlowArray::Y)[3];
  }
}

/// A tensor whose data is addresses that stand for its bytes in the file.
file::Tensor in_place(const file::TensorPlace& p, file::io::FileMap& map) {
  const auto width = static_cast<index_t>(size_of(p.dtype));
  if (p.swap_bytes || p.offset % width != 0)
    throw Unsupported(
        fmt::format("{}: its elements {}, and with --memory they are read as they lie: write the file anew, "
                    "or leave --memory out",
                    p.path,
                    p.swap_bytes ? "have the other byte order than this machine"
                                 : fmt::format("begin at byte {}, no multiple of {}", p.offset, width)));
  const file::ByteRange range = file::byte_range(p);
  std::byte* const first =
      map.place(std::make_shared<const file::io::OpenFile>(p.path), range.begin, range.end - range.begin);
  return {file::FileTensor{p.dtype, p.shape, p.strides, first + (p.offset - range.begin)}, nullptr};
}

}  // namespace

bool is_read_at_once(SlowArray a) { return is_of_heads(a); }

LoadedInputs::LoadedInputs(const FileOptions& files, const Problem& kind, const Archive* archive,
                           file::io::FileMap* map) {
  const Operation op = kind.op;
  std::unique_ptr<Archive> own;
  if (archive == nullptr && files.input) archive = (own = open_archive(*files.input)).get();
  const auto is_there = [&](const std::string& name) {
    return files.npy.at(name).has_value() || files.raw_of(name) || files.is_taken_from(archive, name);
  };
  const auto read = [&](SlowArray array) {
    const std::string name = tensor_name(array);
    const std::optional<std::string>& npy = files.npy.at(name);
    const std::optional<file::RawTensor> raw = files.raw_of(name);
    if ((npy || raw) && files.is_taken_from(archive, name))
      throw InvalidProblem(fmt::format("--{} {}: {} has a tensor {}, too: leave one of them out", npy ? name : "raw",
                                       npy ? *npy : name + "=" + raw->path, *files.input, files.name_of(name)));
    const bool from_archive = !npy && !raw && archive != nullptr;
    if (from_archive) used_.insert(files.name_of(name));
    if (map != nullptr && !is_read_at_once(array))
      if (const auto place = files.place_of(name)) return in_place(*place, *map);
    if (npy) return file::read_npy(*npy);
    if (raw) return file::read_raw(*raw);
    if (from_archive) return archive->tensor(files.name_of(name));
    throw InvalidProblem(fmt::format("files are missing: --op {} needs --{}", redblue::name_of(op), name));
  };
  if (files.with_forward) {
    forward_given_ = false;
  } else if (follows_forward(op) && kind.has_statistics()) {
    forward_given_ = is_there("o");
    if (forward_given_ != is_there("lse"))
      throw InvalidProblem(fmt::format("{} is given and {} is not: give both, or neither to have them computed first",
                                       forward_given_ ? "o" : "lse", forward_given_ ? "lse" : "o"));
  }
  Problem p = sample(kind);
  p.forward_given = forward_given_;
  if (files.layout) layout_.emplace(*files.layout);
  const auto arrays = read_by(p);
  if (archive != nullptr) {
    std::vector<std::string> names = tensor_names(arrays);
    std::erase_if(names, [&](const std::string& name) { return files.raw_of(name).has_value(); });
    require_names_in(*archive, files, names);
  }
  for (const SlowArray a : arrays) {
    if (is_of_modifiers(a)) {
      const std::string name = tensor_name(a);
      if (!is_there(name) && files.name_of(name) == name) continue;  // slopes that ALiBi's authors give
      tensors_[a] = view_of_modifier(a, loaded_.emplace(a, read(a)).first->second);
      continue;
    }
    const file::Tensor& t = loaded_.emplace(a, read(a)).first->second;
    const file::Tensor& first = loaded_.at(arrays.front());
    if (!layout_)
      layout_ =
          FileLayout::of_rank(first.shape().size(), fmt::format("{} [{}]", tensor_name(a), fmt::join(t.shape(), ", ")));
    const bool has_no_columns = is_statistic(a) || a == SlowArray::lse_g;
    if (!files.layout && t.rank() + (has_no_columns ? 1 : 0) != first.rank())
      throw InvalidProblem(fmt::format(
          "{} [{}] and {} [{}] have numbers of dimensions that do not go together: give all the same, lse one "
          "less (no last dimension)",
          tensor_name(arrays.front()), fmt::join(first.shape(), ", "), tensor_name(a), fmt::join(t.shape(), ", ")));
    tensors_[a] = layout_->view(a, t);
    if (t.dtype() == DType::boolean)
      throw InvalidProblem(
          fmt::format("{} is bool: only a bias may be, as a mask in which true keeps", tensor_name(a)));
    for (const index_t size : t.shape())
      if (size < 1)
        throw InvalidProblem(
            fmt::format("{} is [{}]: every dimension must be at least 1", tensor_name(a), fmt::join(t.shape(), ", ")));
  }
  if (!files.layout && !is_projected(op) && op != Operation::merge)
    require_clear_layout(*layout_, tensors_[SlowArray::Q], tensors_[SlowArray::K]);
  // If the file holds two copies of what --sources declares to be one array, their numbers must be equal.
  for (const auto& [copy, source] :
       {std::pair(SlowArray::A2, SlowArray::A1),
        std::pair(SlowArray::A3, kind.sources == Sources::self ? SlowArray::A1 : SlowArray::A2)}) {
    const std::string name = tensor_name(copy);
    if (!is_projected(op) || loaded_.contains(copy) || !is_there(name)) continue;
    if (map != nullptr)
      throw InvalidProblem(
          fmt::format("--sources {} with --memory: {} is given beside {}, and to see whether they are "
                      "equal both would be read as a whole; leave {} out{}",
                      redblue::name_of(kind.sources), name, tensor_name(source), name,
                      archive != nullptr ? " (--ignore " + files.name_of(name) + ")" : ""));
    if (const file::Tensor t = read(copy); !same_numbers(tensors_[source], layout_->view(copy, t)))
      throw InvalidProblem(fmt::format("--sources {}: {} and {} differ; give --sources distinct, or leave {} out",
                                       redblue::name_of(kind.sources), tensor_name(source), name, name));
  }
}

std::vector<file::partial::Input> LoadedInputs::places(const FileOptions& files) const {
  std::vector<file::partial::Input> list;
  for (const auto& [array, tensor] : loaded_) {
    if (is_read_at_once(array)) continue;
    const std::string name = tensor_name(array);
    const file::TensorPlace at = files.place_of(name).value();
    const bool named = !files.npy.at(name) && !files.raw_of(name);
    list.push_back(
        {name, at.path,
         fmt::format("{}{} [{}] at byte {}, strides [{}]",
                     named ? fmt::format("its tensor '{}', ", files.name_of(name)) : "", redblue::name_of(at.dtype),
                     fmt::join(at.shape, ", "), at.offset, fmt::join(at.strides, ", "))});
  }
  return list;
}

bool LoadedInputs::any_f64() const {
  return std::any_of(loaded_.begin(), loaded_.end(), [](const auto& t) { return t.second.dtype() == DType::f64; });
}

Problem LoadedInputs::problem(Problem p) const {
  set_sizes(p, tensors_);
  if (p.bias) p.bias = tensors_[SlowArray::bias].shape;
  p.forward_given = forward_given_;
  p.validate();
  const auto others = [&](SlowArray wrong) {
    std::string text;
    for (const SlowArray a : inputs_of(p))
      if (a != wrong)
        text += fmt::format("{} {} [{}]", text.empty() ? "" : ",", tensor_name(a), fmt::join(tensors_[a].shape, ", "));
    return text;
  };
  for (const SlowArray a : inputs_of(p)) {
    const auto wanted = shape_of(p, a), found = tensors_[a].shape;
    if (a == SlowArray::slopes && tensors_[a].data == nullptr) continue;
    if (found != wanted && is_of_heads(a))
      throw InvalidProblem(fmt::format("{} has {} numbers, and q has {} heads: give one for each, as [heads]",
                                       tensor_name(a), found[0] * found[1] * found[2] * found[3], p.heads));
    if (found != wanted)
      throw InvalidProblem(fmt::format("{} is [{}], beside{} it must be [{}] (batch, heads, rows, columns)",
                                       tensor_name(a), fmt::join(found, ", "), others(a), fmt::join(wanted, ", ")));
  }
  return p;
}

struct OutputFiles::Files {
  struct Output {
    SlowArray array;
    std::string name;
    std::vector<std::byte> data;
    Tensor view;
    file::FileTensor tensor;
    std::optional<file::AtomicFile> npy;
  };
  FileOptions options;
  file::partial::PartialRun* partial = nullptr;
  std::optional<file::AtomicFile> archive;
  std::list<Output> outputs;  // AtomicFile stays where it is

  /// What the one file holds.
  std::vector<file::NamedTensor> named() const {
    std::vector<file::NamedTensor> list;
    for (const Output& out : outputs) list.push_back({options.name_of(out.name), out.tensor});
    return list;
  }
  /// Writes the headers, and gives the outputs addresses of what follows them.
  void place_in(file::io::FileMap& map) {
    if (options.output) {
      const std::vector<file::NamedTensor> list = named();
      const auto [header, begin] = file::safetensors_header(list);
      const auto file = partial->output(0, file::safetensors_file_size(list), header);
      std::size_t i = 0;
      for (Output& out : outputs) out.view.data = map.place(file, begin[i++], out.tensor.size_bytes());
      return;
    }
    std::size_t i = 0;
    for (Output& out : outputs) {
      const std::string header = file::npy_header(out.tensor);
      const auto file = partial->output(i++, file::npy_file_size(out.tensor), header);
      out.view.data = map.place(file, static_cast<index_t>(header.size()), out.tensor.size_bytes());
    }
  }
};

std::vector<std::string> OutputFiles::paths(const FileOptions& files, const Problem& p) {
  if (files.output) return {*files.output};
  std::vector<std::string> paths;
  for (const SlowArray a : files.written(p))
    if (const auto& npy = files.npy.at(tensor_name(a))) paths.push_back(*npy);
  return paths;
}

OutputFiles::OutputFiles(const FileOptions& files, const Problem& p, DType dtype, DType lse_dtype,
                         const FileLayout& layout, file::partial::PartialRun* partial, file::io::FileMap* map)
    : files_(std::make_unique<Files>()) {
  files_->partial = partial;
  files_->options = files;
  const bool in_memory = partial == nullptr;
  if (files.output && in_memory) files_->archive.emplace(*files.output);
  for (const SlowArray a : files.written(p)) {
    const std::string name = tensor_name(a);
    if (!files.wants(name)) continue;
    Files::Output& out = files_->outputs.emplace_back();
    out.array = a;
    out.name = name;
    const DType type = is_statistic(a) || adds_to(p, a) ? lse_dtype : dtype;
    const auto shape = shape_of(p, a);
    const Words words = Words(shape[0]) * shape[1] * shape[2] * shape[3];
    if (in_memory) out.data.resize(static_cast<std::size_t>((words * size_of(type)).to_index()));
    if (is_of_modifiers(a)) {  // in no layout, as bias and sinks are
      const std::vector<index_t> in_file =
          is_of_heads(a) ? std::vector<index_t>{p.heads} : std::vector<index_t>(shape.begin(), shape.end());
      out.view = Tensor(out.data.data(), type, shape);
      out.tensor = file::c_order_tensor(type, in_file, out.data.data());
    } else {
      out.view = layout.contiguous(out.data.data(), type, shape);
      out.tensor = file::c_order_tensor(type, layout.shape_in_file(a, shape), out.data.data());
    }
    if (!files.output && in_memory) out.npy.emplace(*files.npy.at(name)).reserve(file::npy_file_size(out.tensor));
  }
  if (files_->archive) files_->archive->reserve(archive_size(*files.output, files_->named()));
  if (!in_memory) files_->place_in(*map);
}

OutputFiles::~OutputFiles() = default;

void OutputFiles::add_to(Tensors& tensors, RunOptions& options) const {
  for (const auto& out : files_->outputs) tensors[out.array] = out.view;
  if (files_->options.with_forward) options.forward = {tensors[SlowArray::O], tensors[SlowArray::lse]};
}

void OutputFiles::copy_given(const Problem& p, const Tensors& given) const {
  for (auto& out : files_->outputs) {
    if (!adds_to(p, out.array)) continue;
    const Tensor &from = given[out.array], &to = out.view;
    if (from.dtype != to.dtype)
      throw Unsupported(
          fmt::format("{} is {} in the file: parts are added in {}, the type of the arithmetic, for "
                      "another type would round each of them",
                      out.name, redblue::name_of(from.dtype), redblue::name_of(to.dtype)));
    if (from.shape != to.shape)
      throw InvalidProblem(fmt::format("{} is [{}]: it must be [{}] (batch, heads, rows, columns)", out.name,
                                       fmt::join(from.shape, ", "), fmt::join(to.shape, ", ")));
    copy(from, to);
  }
}

void OutputFiles::commit() {
  if (files_->partial != nullptr) return files_->partial->finish();
  if (files_->archive) {
    write_archive(*files_->archive, files_->named());
    files_->archive->commit();
    return;
  }
  std::vector<file::AtomicFile*> all;
  for (auto& out : files_->outputs) {
    file::write_npy(*out.npy, out.tensor);
    all.push_back(&*out.npy);
  }
  file::AtomicFile::commit_together(all);
}

}  // namespace redblue::cli
