#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "redblue/schedule.hpp"

namespace redblue::schedule {

/// Rows fall into P groups, and each task attends within k of these: the groups a + i (mod P), for a in a set whose
/// differences meet each number but 0 (mod P) once. So each pair of groups meets in one task. Outputs come and go k
/// times. Stream-CQSA (arXiv 2604.20819) cuts attention for GPUs in this way; this text follows the description in its
/// abstract and leaves out that it cuts again within a task. It is kind: of a task only K and V are resident, and
/// queries come group by group.
///   reads n (k (2 d + 2 d_v + 1) - d_v - 1)   writes n k (d_v + 1)   footprint r (d + d_v) + b (d + d_v + 3)
/// with n = n_q = n_k rows, b = ceil(n/P) of a group and r of the k groups of a task, at most k b.
struct CyclicQuorumsForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "cyclic_quorums";
  static constexpr std::string_view idea = "attending within sets of groups of rows, one for each pair of groups";
  static constexpr Traits traits{.rewrites_outputs = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t P = 1;  ///< groups of rows
    void tile_sizes(const auto& tile_size) { tile_size({.name = "P", .most = 133}, P); }
  };

  /// Sets of k numbers with P = k (k - 1) + 1 (Singer 1938), joined.
  static constexpr std::array kSets{0,                                               // P = 1
                                    0, 1,                                            // 3
                                    0, 1, 3,                                         // 7
                                    0, 1, 3, 9,                                      // 13
                                    0, 1, 4, 14, 16,                                 // 21
                                    0, 1, 3, 8,  12, 18,                             // 31
                                    0, 1, 3, 13, 32, 36, 43, 52,                     // 57
                                    0, 1, 3, 7,  15, 31, 36, 54, 63,                 // 73
                                    0, 1, 3, 9,  27, 49, 56, 61, 77, 81,             // 91
                                    0, 1, 3, 12, 20, 34, 38, 81, 88, 94, 104, 109};  // 133
  static constexpr std::array kSizes{1, 2, 3, 4, 5, 6, 8, 9, 10, 12};
  static constexpr index_t groups_of(index_t k) { return k * (k - 1) + 1; }
  static constexpr std::span<const int> set_of(index_t P) {
    std::size_t begin = 0;
    for (const int k : kSizes) {
      if (groups_of(k) == P) return {kSets.data() + begin, static_cast<std::size_t>(k)};
      begin += static_cast<std::size_t>(k);
    }
    return {};
  }
  static consteval bool meets_each_difference_once() {
    for (const int k : kSizes) {
      const index_t P = groups_of(k);
      std::array<int, 134> times{};
      for (const int a : set_of(P))
        for (const int b : set_of(P)) ++times[static_cast<std::size_t>((a - b + P) % P)];
      if (times[0] != k || std::any_of(times.begin() + 1, times.begin() + P, [](int t) { return t != 1; }))
        return false;
    }
    return true;
  }

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (x.n_q == x.n_k) return std::nullopt;
    return "needs as many queries, of all heads that share the keys, as keys";
  }
  static bool allows(const Sizes&, Tiling t) { return !set_of(t.P).empty(); }
  static Tiling smallest(const Sizes&, const Multiples&) { return {133}; }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    for (const int k : kSizes)  // words grow with k
      if (const Tiling t{groups_of(k)}; limits.fit(footprint(x, t), prefetch(x, t))) return t;
    return std::nullopt;
  }

  /// The k groups of rows of one task, some empty where there are few rows, and which of them an earlier task had.
  struct Task {
    std::vector<Range> groups;
    std::vector<bool> again;
    index_t rows = 0;
  };
  static std::vector<Task> tasks(const Sizes& x, Tiling t) {
    const index_t b = ceil_div(x.n_k, t.P);
    std::vector<Task> list(static_cast<std::size_t>(t.P));
    std::vector<bool> visited(static_cast<std::size_t>(t.P));
    for (index_t i = 0; i < t.P; ++i)
      for (const int a : set_of(t.P)) {
        Task& task = list[static_cast<std::size_t>(i)];
        const index_t group = (a + i) % t.P;
        const Range rows{std::min(group * b, x.n_k), std::min((group + 1) * b, x.n_k)};
        task.groups.push_back(rows);
        task.again.push_back(visited[static_cast<std::size_t>(group)]);
        task.rows += rows.size();
        visited[static_cast<std::size_t>(group)] = true;
      }
    return list;
  }

  static Words footprint(const Sizes& x, Tiling t) {
    using enum SlowArray;
    Words most = 0;
    for (const Task& task : tasks(x, t))
      for (std::size_t i = 0; i < task.groups.size(); ++i) {
        const index_t b = task.groups[i].size();
        if (b == 0) continue;
        most = std::max(most, x.tile(K, task.rows, x.d) + x.tile(V, task.rows, x.d_v) + x.tile(Q, b, x.d) +
                                  x.tile(O, b, x.d_v) + 2 * x.tile(lse, b, 1) +
                                  std::max(x.tile(S, b, 1), task.again[i] ? x.word(lse) : Words(0)));
      }
    return most;
  }
  /// A word of the lse that is given.
  static Words prefetch(const Sizes& x, Tiling t) { return t.P > 1 ? x.word(SlowArray::lse) : Words(0); }
  static Io io(const Sizes& x, Tiling t) {
    const Words rows = Words(x.n_q) * std::ssize(set_of(t.P)), again = rows - x.n_q;
    return Io()
        .read(SlowArray::Q, rows * x.d)
        .read(SlowArray::K, rows * x.d)
        .read(SlowArray::V, rows * x.d_v)
        .read(SlowArray::O, again * x.d_v)
        .read(SlowArray::lse, again)
        .write(SlowArray::O, rows * x.d_v)
        .write(SlowArray::lse, rows);
  }
  static Words macs(const Sizes& x, Tiling) { return x.nnz() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    for (const Task& task : tasks(x.shape, t)) {
      const auto K_i = m.alloc(SlowArray::K, {task.rows, x.shape.d}),
                 V_i = m.alloc(SlowArray::V, {task.rows, x.shape.d_v});
      index_t at = 0;
      for (const Range& J : task.groups) {
        m.load_into(K_i.rows(at, J.size()), x.K.rows(J));
        m.load_into(V_i.rows(at, J.size()), x.V.rows(J));
        at += J.size();
      }
      for (std::size_t i = 0; i < task.groups.size(); ++i)
        if (task.groups[i].size() > 0)
          attend(m, x, task.groups[i], task.again[i], [&](const auto& keys) {
            index_t begin = 0;
            for (std::size_t j = 0; j < task.groups.size(); ++j) {
              const index_t end = begin + task.groups[j].size();
              // A group meets itself in that of its tasks where it comes first.
              if (i != j || i == 0) keys(K_i, V_i, Range{begin, end});
              begin = end;
            }
          });
    }
  }

 private:
  template <Machine M, class Keys>
  static void attend(M& m, const ForwardOperands& x, Range I, bool again, const Keys& for_keys) {
    const auto Q_i = m.load(x.Q.rows(I)), O_i = again ? m.load(x.O.rows(I)) : m.alloc(x.O.rows(I));
    const auto m_i = m.alloc(x.lse.rows(I)), l_i = m.alloc(x.lse.rows(I));
    if (again) {  // the keys before are as one, whose value is O and whose score is lse
      m.compute(kernel::StatisticsInit{}, m_i, l_i);
      m.compute(kernel::StatisticsAdd{}, m_i, l_i, m.stream(x.lse.rows(I)));
    } else {
      m.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
    }
    const auto s = m.alloc(SlowArray::S, {I.size(), 1});
    for_keys([&](const auto& K, const auto& V, Range J) {
      for (index_t j = J.begin; j < J.end; ++j) {
        m.compute(kernel::Scores{x.scale}, s, Q_i, K.rows(j, 1));
        m.compute(kernel::OnlineSoftmax{}, s, O_i, m_i, l_i);
        m.compute(kernel::Gemm{}, O_i, s, V.rows(j, 1));
      }
    });
    m.compute(kernel::SoftmaxFinish{}, O_i, m_i, l_i);  // O <- O / l, m <- lse
    m.store(O_i, x.O.rows(I));
    m.store(m_i, x.lse.rows(I));
  }
};
static_assert(CyclicQuorumsForward::meets_each_difference_once());

}  // namespace redblue::schedule
