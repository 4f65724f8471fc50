// Products of several vectors with one block of rows in one pass, and a whole chain of logistic
// regression, called by XLA on a processor. Built and measured by kernels.py.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using Reals = ffi::Buffer<ffi::F32>;
using Numbers = ffi::Buffer<ffi::S32>;
typedef float Vector __attribute__((vector_size(16)));

constexpr int kLanes = 4, kRows = 4, kMost = 8, kWide = 1024;

inline Vector Load(const float* from) {
  Vector found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

// u[c][i] = sum_k v[c][k] a[i][k] for R rows from the i-th, C vectors; p >= 4.
template <int C, int R>
inline void ForwardRows(const float* a, const float* const* v, float* const* u, int64_t i,
                        int64_t p) {
  Vector sums[C][R] = {};
  auto add = [&](int64_t k, int64_t counted) {
    Vector x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] = Load(a + (i + r) * p + k);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      Vector w = Load(v[c] + k);
      for (int lane = 0; lane < counted; ++lane) w[lane] = 0;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[c][r] += w * x[r];
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= p; k += kLanes) add(k, 0);
  if (k < p) add(p - kLanes, k - (p - kLanes));  // without the lanes that were counted
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      u[c][i + r] = sums[c][r][0] + sums[c][r][1] + sums[c][r][2] + sums[c][r][3];
}

template <int C>
void Forward(const float* a, const float* const* v, float* const* u, int64_t rows, int64_t p) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) ForwardRows<C, kRows>(a, v, u, i, p);
  for (; i < rows; ++i) ForwardRows<C, 1>(a, v, u, i, p);
}

// h[c][k] = sum_i r[c][i] a[i][k] for N vectors of columns from the k-th.
template <int C, int N>
inline void BackColumns(const float* a, const float* const* r, float* const* h, int64_t k,
                        int64_t rows, int64_t p) {
  Vector sums[C][N] = {};
  for (int64_t i = 0; i < rows; ++i) {
    Vector x[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) x[n] = Load(a + i * p + k + n * kLanes);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[c][n] += r[c][i] * x[n];
  }
  for (int c = 0; c < C; ++c)
    for (int n = 0; n < N; ++n) std::memcpy(h[c] + k + n * kLanes, &sums[c][n], sizeof(Vector));
}

template <int C>
void Back(const float* a, const float* const* r, float* const* h, int64_t rows, int64_t p) {
  constexpr int N = C > 2 ? 4 : 8;
  int64_t k = 0;
  for (; k + N * kLanes <= p; k += N * kLanes) BackColumns<C, N>(a, r, h, k, rows, p);
  for (; k + kLanes <= p; k += kLanes) BackColumns<C, 1>(a, r, h, k, rows, p);
  if (k < p) BackColumns<C, 1>(a, r, h, p - kLanes, rows, p);
}

// data (agents, rows, p); agent, start (agents); each of `given` (agents, columns, p or block).
template <bool forward>
ffi::Error Pass(Reals data, Numbers agent, Numbers start, ffi::RemainingArgs given,
                ffi::RemainingRets found) {
  auto shape = data.dimensions();
  const int64_t p = shape[shape.size() - 1], rows = shape[shape.size() - 2];
  const int64_t agents = agent.element_count();
  const float* from[kMost];
  float* to[kMost];
  int64_t step_from[kMost], step_to[kMost], block = 0, count = 0;
  for (size_t j = 0; j < given.size(); ++j) {
    auto in = given.get<Reals>(j);
    auto out = found.get<Reals>(j);
    auto narrow = forward ? (*out)->dimensions() : in->dimensions();
    block = narrow[narrow.size() - 1];
    const int64_t n = forward ? p : block, m = forward ? block : p;
    const int64_t columns = in->element_count() / n / agents;
    for (int64_t q = 0; q < columns && count < kMost; ++q, ++count) {
      from[count] = in->typed_data() + q * n;
      to[count] = (*out)->typed_data() + q * m;
      step_from[count] = columns * n;
      step_to[count] = columns * m;
    }
  }
  if (p < kLanes) return ffi::Error::InvalidArgument("at least four columns");
  if (count != 2 && count != 4) return ffi::Error::InvalidArgument("give two vectors or four");
  for (int64_t b = 0; b < agents; ++b) {
    const int64_t at = agent.typed_data()[b] * rows + start.typed_data()[b];
    const float* a = data.typed_data() + at * p;
    if (forward) {
      count == 4 ? Forward<4>(a, from, to, block, p) : Forward<2>(a, from, to, block, p);
    } else {
      count == 4 ? Back<4>(a, from, to, block, p) : Back<2>(a, from, to, block, p);
    }
    for (int64_t c = 0; c < count; ++c) from[c] += step_from[c], to[c] += step_to[c];
  }
  return ffi::Error::Success();
}

// w - (A'(s (1 - s) A w) / B + exp(x) w / p) / L, link by link, at two points.
ffi::Error Chain(Reals data, Reals labels, Numbers agent, Numbers starts, Numbers depth, Reals x,
                 Reals y, Reals w, ffi::Result<Reals> z, float lipschitz, int64_t block) {
  auto shape = data.dimensions();
  const int64_t p = shape[shape.size() - 1], rows = shape[shape.size() - 2];
  const int64_t agents = agent.element_count(), links = starts.element_count() / agents;
  if (p < kLanes || p > kWide || block > kWide)
    return ffi::Error::InvalidArgument("four to 1,024 columns, at most 1,024 rows");
  float products[4 * kWide], bent[2 * kWide], penalty[2 * kWide], moved[2 * kWide];
  for (int64_t b = 0; b < agents; ++b) {
    const float* here = y.typed_data() + b * 2 * p;
    std::memcpy(moved, w.typed_data() + b * 2 * p, 2 * p * sizeof(float));
    for (int64_t k = 0; k < 2 * p; ++k) penalty[k] = std::exp(x.typed_data()[b * 2 * p + k]) / p;
    const float* v[4] = {here, here + p, moved, moved + p};
    float* u[4] = {products, products + block, products + 2 * block, products + 3 * block};
    float* h[2] = {bent, bent + p};
    for (int j = 0; j < depth.typed_data()[0]; ++j) {
      const int64_t at = agent.typed_data()[b] * rows + starts.typed_data()[b * links + j];
      const float *a = data.typed_data() + at * p, *c = labels.typed_data() + at;
      Forward<4>(a, v, u, block, p);
      for (int q = 0; q < 2; ++q)
        for (int64_t i = 0; i < block; ++i) {
          const float s = 1 / (1 + std::exp(-c[i] * u[q][i]));
          u[q][i] = s * (1 - s) * u[2 + q][i] / block;
        }
      Back<2>(a, u, h, block, p);
      for (int64_t k = 0; k < 2 * p; ++k) moved[k] -= (bent[k] + penalty[k] * moved[k]) / lipschitz;
    }
    std::memcpy(z->typed_data() + b * 2 * p, moved, 2 * p * sizeof(float));
  }
  return ffi::Error::Success();
}

auto Passes() {
  return ffi::Ffi::Bind()
      .Arg<Reals>()
      .Arg<Numbers>()
      .Arg<Numbers>()
      .RemainingArgs()
      .RemainingRets();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(forward_pass, Pass<true>, Passes());
XLA_FFI_DEFINE_HANDLER_SYMBOL(back_pass, Pass<false>, Passes());
XLA_FFI_DEFINE_HANDLER_SYMBOL(whole_chain, Chain,
                              ffi::Ffi::Bind()
                                  .Arg<Reals>()
                                  .Arg<Reals>()
                                  .Arg<Numbers>()
                                  .Arg<Numbers>()
                                  .Arg<Numbers>()
                                  .Arg<Reals>()
                                  .Arg<Reals>()
                                  .Arg<Reals>()
                                  .Ret<Reals>()
                                  .Attr<float>("lipschitz")
                                  .Attr<int64_t>("block"));
