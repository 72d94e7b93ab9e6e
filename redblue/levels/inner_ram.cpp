#include "redblue/levels/inner_ram.hpp"

#include <chrono>

#include "redblue/levels/carry_out.hpp"
#include "redblue/machines/counting.hpp"

namespace redblue::levels {

namespace {

/// Is there enough to do for several workers? To meet takes them some microseconds, and more on a busy machine.
bool is_worth_sharing(const kernel::AnyKernel& k, std::span<const Block> blocks) {
  constexpr index_t kLeast = 1 << 20,
                    kOfAWord = 16;  // multiply-adds of some 20 microseconds; what a word costs in them
  std::vector<Arg> args;
  args.reserve(blocks.size());
  index_t work = 0;
  for (const Block& b : blocks) {
    args.push_back(Arg::streaming(b));
    work += kOfAWord * b.shape.words();
  }
  return work + k.macs(args) >= kLeast;
}

}  // namespace

template <class T>
class InnerRam {
 public:
  InnerRam(const std::vector<Inner>& levels, ThreadPool& pool, int workers,
           const kernel::Implementations<T>& implementations)
      : last_(levels.size() == 1),
        sizes_(levels.front(), last_),
        pool_(pool),
        workers_(workers),
        above_(kernel::implementations_below(implementations)) {
    if (!last_) {
      below_ = std::make_unique<InnerLevels<T>>(std::vector(levels.begin() + 1, levels.end()), workers, pool, 1,
                                                implementations);
      states_.below = below_.get();
    }
    states_.implementations = last_ ? &implementations : &above_;
    states_.slow.resize(1);
    for (int i = 0; i < workers; ++i) states_.arenas.emplace_back(levels.front().M.to_index());
  }

  void run(const kernel::AnyKernel& k, std::span<const View<T>> views) {
    std::vector<Shape> shapes;
    std::vector<Block> blocks;
    machine::SlowMemory& slow = states_.slow.front();
    for (std::size_t i = 0; i < views.size(); ++i) {
      const View<T>& v = views[i];
      shapes.push_back(v.shape);
      blocks.push_back({.array = static_cast<SlowArray>(i), .shape = v.shape});  // by the number of the argument
      slow[i] = machine::Storage::matrix(v.data, v.shape);
      slow[i].row_stride = v.row_stride;
      slow[i].col_stride = v.col_stride;
    }
    const auto start = std::chrono::steady_clock::now();
    const Division division(k, shapes);
    const Call call{k, division, blocks, sizes_.of(k, division, shapes), last_};
    const auto main = [&](machine::Team& team) {
      states_.team = &team;
      machine::Ram<T> ram(states_);
      machine::Counted counted(ram);
      carry_out(counted, call);
      moved_.words += counted.io().total();
      moved_.peak = std::max(moved_.peak, Words(counted.peak()));
    };
    machine::Team::run(pool_, is_worth_sharing(k, blocks) ? workers_ : 1, main, machine::Team::Subnormals::flushed);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  double seconds() const { return seconds_; }

  std::vector<typename InnerLevels<T>::Moved> moved() const {
    std::vector<typename InnerLevels<T>::Moved> list{moved_};
    if (below_ != nullptr)
      for (const auto& m : below_->moved()) list.push_back(m);
    return list;
  }

 private:
  const bool last_;  ///< does this level run implementations?
  ChosenSizes sizes_;
  ThreadPool& pool_;
  int workers_;
  kernel::Implementations<T> above_;  ///< where a level below runs kernels
  machine::WorkerStates<T, machine::CallerMemory<T>> states_;
  std::unique_ptr<InnerLevels<T>> below_;
  typename InnerLevels<T>::Moved moved_;
  double seconds_ = 0;
};

template <class T>
InnerLevels<T>::InnerLevels(const std::vector<Inner>& levels, int above, ThreadPool& pool, int workers,
                            const kernel::Implementations<T>& implementations) {
  for (int i = 0; i < above; ++i)
    workers_.push_back(std::make_unique<InnerRam<T>>(levels, pool, workers, implementations));
}

template <class T>
InnerLevels<T>::~InnerLevels() = default;

template <class T>
void InnerLevels<T>::run(int worker, const kernel::AnyKernel& k, std::span<const View<T>> views) {
  workers_[static_cast<std::size_t>(worker)]->run(k, views);
}

template <class T>
std::vector<typename InnerLevels<T>::Moved> InnerLevels<T>::moved() const {
  std::vector<Moved> all = workers_.front()->moved();
  for (std::size_t w = 1; w < workers_.size(); ++w) {
    const std::vector<Moved> more = workers_[w]->moved();
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].words += more[i].words;
      all[i].peak = std::max(all[i].peak, more[i].peak);
    }
  }
  return all;
}

template <class T>
double InnerLevels<T>::seconds() const {
  double seconds = 0;
  for (const auto& worker : workers_) seconds += worker->seconds();
  return seconds;
}

template class InnerLevels<float>;
template class InnerLevels<double>;

}  // namespace redblue::levels
