#include "bindings/cuda.h"

#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cuda/activation.cuh"
#include "cuda/attention.cuh"
#include "cuda/bandwidth.cuh"
#include "cuda/bitmask.cuh"
#include "cuda/gather.cuh"
#include "cuda/linear/product.cuh"
#include "cuda/norm.cuh"
#include "cuda/sampling/guidance.cuh"
#include "cuda/sampling/penalties.cuh"
#include "cuda/sampling/repetition.cuh"
#include "cuda/sampling/sampling.cuh"
#include "cuda/step_tokens.cuh"

namespace py = pybind11;
using namespace constrain::cuda;
using py::arg;

namespace {

KVFormat kv_format(const std::string& name) {
  if (name == "plain") return KVFormat::plain;
  if (name == "float8") return KVFormat::float8;
  if (name == "group8") return KVFormat::group8;
  if (name == "group4") return KVFormat::group4;
  throw std::invalid_argument("unknown format of keys and values " + name);
}

void bind_bitmask(py::module_& m) {
  m.def(
      "apply_bitmask",
      [](Address logits, const std::string& dtype, int64_t logits_stride, Address bits, int64_t bits_stride,
         Address chosen, int64_t rows, int64_t width, Address stream) {
        apply_bitmask(LogitsView{data(logits), float_type(dtype), logits_stride, rows, width},
                      BitmaskView{pointer<const int32_t>(bits), bits_stride, pointer<const int32_t>(chosen)},
                      stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("dtype"), arg("logits_stride"), arg("bits"), arg("bits_stride"), arg("chosen"),
      arg("rows"), arg("width"), arg("stream"), "Queue on `stream`: logits whose bit is clear become -inf.");
  m.def(
      "measure_masses",
      [](Address logits, int64_t stride, Address tokens, Address bits, int64_t bits_stride, Address chosen,
         Address watched_bits, int64_t watched_bits_stride, Address watched_chosen, Address sums, Address choices,
         int max_choices, int rows, int width, Address stream) {
        const BitmaskView allowed{pointer<const int32_t>(bits), bits_stride, pointer<const int32_t>(chosen)};
        const BitmaskView watched{pointer<const int32_t>(watched_bits), watched_bits_stride,
                                  pointer<const int32_t>(watched_chosen)};
        measure_masses(MaskedRows{pointer<const float>(logits), stride, pointer<const int64_t>(tokens), allowed,
                                  watched, pointer<float>(sums), pointer<float>(choices), max_choices, rows, width},
                       stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("stride"), arg("tokens"), arg("bits"), arg("bits_stride"), arg("chosen"),
      arg("watched_bits"), arg("watched_bits_stride"), arg("watched_chosen"), arg("sums"), arg("choices"),
      arg("max_choices"), arg("rows"), arg("width"), arg("stream"),
      "Queue the sums of probability over all and over the allowed tokens of each row, and the logits of few choices.");
}

void bind_rows(py::module_& m) {
  m.def(
      "normalise",
      [](Address x, Address residual, Address weight, Address bias, Address out, int64_t x_stride,
         int64_t residual_stride, int64_t out_stride, int64_t rows, int width, float eps, bool centred,
         const std::string& dtype, Address stream) {
        normalise(NormRows{data(x), data(residual), data(weight), data(bias), data(out), x_stride, residual_stride,
                           out_stride, rows, width, eps, centred, float_type(dtype)},
                  stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("residual"), arg("weight"), arg("bias"), arg("out"), arg("x_stride"),
      arg("residual_stride"), arg("out_stride"), arg("rows"), arg("width"), arg("eps"), arg("centred"), arg("dtype"),
      arg("stream"), "Queue an RMS norm, or a layer norm where centred, of rows.");
  m.def(
      "normalise_heads",
      [](Address x, Address weight, int64_t stride, int64_t tokens, int heads, int dim, float eps, bool centred,
         const std::string& dtype, Address stream) {
        normalise_heads(NormHeads{data(x), data(weight), stride, tokens, heads, dim, eps, centred, float_type(dtype)},
                        stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("weight"), arg("stride"), arg("tokens"), arg("heads"), arg("dim"), arg("eps"),
      arg("centred"), arg("dtype"), arg("stream"), "Queue an RMS norm, or a layer norm where centred, of heads.");
  m.def(
      "gather",
      [](Address x, Address order, Address weight, Address out, int64_t x_stride, int64_t rows, int width, int columns,
         float eps, const std::string& dtype, Address stream) {
        gather(GatherRows{data(x), pointer<int>(order), data(weight), data(out), x_stride, rows, width, columns, eps,
                          float_type(dtype)},
               stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("order"), arg("weight"), arg("out"), arg("x_stride"), arg("rows"), arg("width"),
      arg("columns"), arg("eps"), arg("dtype"), arg("stream"),
      "Queue an RMS norm, if one is given, and a gather of rows.");
  m.def(
      "gated_activation",
      [](Address gate_up, Address out, int64_t rows, int width, const std::string& activation, const std::string& dtype,
         Address stream) {
        gated_activation(GatedRows{data(gate_up), data(out), rows, width, gate(activation), float_type(dtype)},
                         stream_of(stream));
      },
      py::kw_only(), arg("gate_up"), arg("out"), arg("rows"), arg("width"), arg("activation"), arg("dtype"),
      arg("stream"), "Queue act(gate) * up.");
  m.def(
      "read_all",
      [](Address memory, int64_t bytes, Address out, Address stream) {
        read_all(data(memory), bytes, pointer<uint32_t>(out), stream_of(stream));
      },
      py::kw_only(), arg("memory"), arg("bytes"), arg("out"), arg("stream"), "Queue a kernel that reads memory.");
}

void bind_products(py::module_& m) {
  py::class_<LowRank>(m, "LowRank", "A low-rank update of a weight, and scratch memory for its product.")
      .def(py::init([](Address down, Address up, Address projected, Address signals, int rank) {
             return LowRank{data(down), data(up), pointer<float>(projected), pointer<int>(signals), rank};
           }),
           py::kw_only(), arg("down"), arg("up"), arg("projected"), arg("signals"), arg("rank"));
  m.def("projected_floats", &projected_floats, py::kw_only(), arg("rows"), arg("inputs"), arg("rank"),
        "Size of the scratch memory of an update.");
  m.def(
      "product",
      [](Address x, Address norm_weight, Address weight, Address bias, Address residual, Address out, int64_t x_stride,
         int64_t residual_stride, int64_t out_stride, int rows, int inputs, int outputs, float eps, bool gated,
         const std::string& activation, const std::string& dtype, const LowRank* update, Address stream) {
        product(Product{data(x), data(norm_weight), data(weight), data(bias), data(residual), data(out), x_stride,
                        residual_stride, out_stride, rows, inputs, outputs, eps, gated, gate(activation),
                        float_type(dtype), update ? *update : LowRank{}},
                stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("norm_weight"), arg("weight"), arg("bias"), arg("residual"), arg("out"),
      arg("x_stride"), arg("residual_stride"), arg("out_stride"), arg("rows"), arg("inputs"), arg("outputs"),
      arg("eps"), arg("gated"), arg("activation"), arg("dtype"), arg("update"), arg("stream"),
      "Queue x @ weight.T + bias + residual, or a gated product.");
  m.def(
      "project_rows",
      [](Address x, int64_t x_stride, int rows, int inputs, const std::string& dtype, const LowRank& update,
         Address stream) {
        Product p{};
        p.x = data(x), p.x_stride = x_stride, p.rows = rows, p.inputs = inputs;
        p.type = float_type(dtype), p.update = update;
        project_rows(p, stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("x_stride"), arg("rows"), arg("inputs"), arg("dtype"), arg("update"), arg("stream"),
      "Queue x @ down.T.");
  m.def(
      "add_projected",
      [](Address base, Address residual, Address out, int64_t residual_stride, int rows, int inputs, int outputs,
         bool gated, const std::string& activation, const std::string& dtype, const LowRank& update, Address stream) {
        Product p{};
        p.residual = data(residual), p.residual_stride = residual_stride, p.out = data(out), p.out_stride = outputs;
        p.rows = rows, p.inputs = inputs, p.outputs = outputs, p.gated = gated, p.gate = gate(activation);
        p.type = float_type(dtype), p.update = update;
        add_projected(p, data(base), stream_of(stream));
      },
      py::kw_only(), arg("base"), arg("residual"), arg("out"), arg("residual_stride"), arg("rows"), arg("inputs"),
      arg("outputs"), arg("gated"), arg("activation"), arg("dtype"), arg("update"), arg("stream"),
      "Queue base + projected @ up.T + residual, or the gated activation of the sum.");
}

void bind_attention(py::module_& m) {
  py::class_<PagesView>(m, "Pages", "The pages of a KV cache.")
      .def(py::init([](Address keys, Address values, Address key_scales, Address value_scales,
                       const std::string& key_format, const std::string& value_format, int64_t page_stride,
                       int64_t slot_stride, int64_t head_stride, Address block_table, int64_t block_table_stride,
                       int page_size, int kv_heads, int head_dim) {
             return PagesView{data(keys),
                              data(values),
                              data(key_scales),
                              data(value_scales),
                              kv_format(key_format),
                              kv_format(value_format),
                              page_stride,
                              slot_stride,
                              head_stride,
                              pointer<const int32_t>(block_table),
                              block_table_stride,
                              page_size,
                              kv_heads,
                              head_dim};
           }),
           py::kw_only(), arg("keys"), arg("values"), arg("key_scales"), arg("value_scales"), arg("key_format"),
           arg("value_format"), arg("page_stride"), arg("slot_stride"), arg("head_stride"), arg("block_table"),
           arg("block_table_stride"), arg("page_size"), arg("kv_heads"), arg("head_dim"));
  py::class_<PagedAttention>(m, "PagedAttention",
                             "Attention of new tokens over pages, after their keys and values have been written there.")
      .def(py::init([](Address qkv, Address out, Address cos, Address sin, const PagesView& pages, Address lengths,
                       int64_t max_length, int batch, int queries, int heads, int rotary_dim, int window, float scale,
                       float cap, const std::string& dtype) {
             return PagedAttention{
                 data(qkv),  data(out), data(cos),        data(sin), pages,      pointer<const int32_t>(lengths),
                 max_length, batch,     queries,          heads,     rotary_dim, window,
                 scale,      cap,       float_type(dtype)};
           }),
           py::kw_only(), arg("qkv"), arg("out"), arg("cos"), arg("sin"), arg("pages"), arg("lengths"),
           arg("max_length"), arg("batch"), arg("queries"), arg("heads"), arg("rotary_dim"), arg("window"),
           arg("scale"), arg("cap"), arg("dtype"))
      .def(
          "workspace",
          [](const PagedAttention& attention) {
            const AttentionWorkspace needed = attention_workspace(attention);
            return py::make_tuple(needed.partial_bytes, needed.counters);
          },
          "Bytes of partial results, and number of int32 counters that are zero, which `run` needs.")
      .def(
          "run",
          [](const PagedAttention& attention, Address partials, Address counters, Address stream) {
            paged_attention(attention, data(partials), pointer<int32_t>(counters), stream_of(stream));
          },
          py::kw_only(), arg("partials"), arg("counters"), arg("stream"), "Queue the attention.");
}

void bind_logits(py::module_& m) {
  m.def(
      "apply_guidance",
      [](Address logits, int64_t stride, Address partner, Address scale, int rows, int width, Address stream) {
        apply_guidance(Guidance{pointer<float>(logits), stride, pointer<const int32_t>(partner),
                                pointer<const float>(scale), rows, width},
                       stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("stride"), arg("partner"), arg("scale"), arg("rows"), arg("width"),
      arg("stream"), "Queue the mixture of rows with their partners.");
  m.def(
      "add_bias",
      [](Address logits, int64_t stride, Address pool, int64_t pool_stride, Address chosen, int rows, int width,
         Address stream) {
        add_bias(Bias{pointer<float>(logits), stride, pointer<const float>(pool), pool_stride,
                      pointer<const int32_t>(chosen), rows, width},
                 stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("stride"), arg("pool"), arg("pool_stride"), arg("chosen"), arg("rows"),
      arg("width"), arg("stream"), "Queue the addition of a bias to the logits of each row.");
  m.def(
      "apply_dry",
      [](Address logits, int64_t logits_stride, Address text, Address block_table, int64_t block_table_stride,
         int page_size, Address lengths, Address multiplier, Address base, Address allowed_length, Address max_ngram,
         Address ranges, Address bits, int64_t bits_stride, Address chosen, int rows, int width, Address stream) {
        const BitmaskView breakers{pointer<const int32_t>(bits), bits_stride, pointer<const int32_t>(chosen)};
        apply_dry(Repetition{pointer<float>(logits), logits_stride, pointer<const int32_t>(text),
                             pointer<const int32_t>(block_table), block_table_stride, page_size,
                             pointer<const int32_t>(lengths), pointer<const float>(multiplier),
                             pointer<const float>(base), pointer<const int32_t>(allowed_length),
                             pointer<const int32_t>(max_ngram), pointer<const int32_t>(ranges), breakers, rows, width},
                  stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("logits_stride"), arg("text"), arg("block_table"), arg("block_table_stride"),
      arg("page_size"), arg("lengths"), arg("multiplier"), arg("base"), arg("allowed_length"), arg("max_ngram"),
      arg("ranges"), arg("bits"), arg("bits_stride"), arg("chosen"), arg("rows"), arg("width"), arg("stream"),
      "Queue the penalties of tokens that would prolong a repetition.");
}

void bind_sampling(py::module_& m) {
  py::class_<Sampling>(m, "Sampling", "Logits, settings of each row, and where tokens go.")
      .def(py::init([](Address logits, int64_t stride, Address temperature, Address top_k, Address top_p, Address min_p,
                       Address seeds, Address positions, Address uniform, Address tokens, Address probabilities,
                       Address bits, int64_t bits_stride, Address chosen, int rows, int width) {
             const BitmaskView allowed{pointer<const int32_t>(bits), bits_stride, pointer<const int32_t>(chosen)};
             return Sampling{pointer<const float>(logits),
                             stride,
                             pointer<const float>(temperature),
                             pointer<const int32_t>(top_k),
                             pointer<const float>(top_p),
                             pointer<const float>(min_p),
                             pointer<const int64_t>(seeds),
                             pointer<const int32_t>(positions),
                             pointer<const double>(uniform),
                             pointer<int64_t>(tokens),
                             pointer<float>(probabilities),
                             allowed,
                             rows,
                             width};
           }),
           py::kw_only(), arg("logits"), arg("stride"), arg("temperature"), arg("top_k"), arg("top_p"), arg("min_p"),
           arg("seeds"), arg("positions"), arg("uniform"), arg("tokens"), arg("probabilities"), arg("bits"),
           arg("bits_stride"), arg("chosen"), arg("rows"), arg("width"));
  py::class_<Shaping>(m, "Shaping", "Settings whose steps need the candidates in descending order.")
      .def(py::init([](Address smoothing_factor, Address top_a, Address tfs, Address typical, Address skew,
                       Address min_temp, Address max_temp, Address temp_exponent, Address xtc_probability,
                       Address xtc_threshold, Address mirostat_mu, Address temperature_last, Address protected_bits,
                       int64_t protected_bits_stride, Address protected_chosen, Address top_ids,
                       Address top_probabilities, Address top_counts, int top_columns, int most_candidates) {
             const BitmaskView protected_tokens{pointer<const int32_t>(protected_bits), protected_bits_stride,
                                                pointer<const int32_t>(protected_chosen)};
             return Shaping{pointer<const float>(smoothing_factor),
                            pointer<const float>(top_a),
                            pointer<const float>(tfs),
                            pointer<const float>(typical),
                            pointer<const float>(skew),
                            pointer<const float>(min_temp),
                            pointer<const float>(max_temp),
                            pointer<const float>(temp_exponent),
                            pointer<const float>(xtc_probability),
                            pointer<const float>(xtc_threshold),
                            pointer<const float>(mirostat_mu),
                            pointer<const int32_t>(temperature_last),
                            protected_tokens,
                            pointer<int64_t>(top_ids),
                            pointer<float>(top_probabilities),
                            pointer<const int32_t>(top_counts),
                            top_columns,
                            most_candidates};
           }),
           py::kw_only(), arg("smoothing_factor"), arg("top_a"), arg("tfs"), arg("typical"), arg("skew"),
           arg("min_temp"), arg("max_temp"), arg("temp_exponent"), arg("xtc_probability"), arg("xtc_threshold"),
           arg("mirostat_mu"), arg("temperature_last"), arg("protected_bits"), arg("protected_bits_stride"),
           arg("protected_chosen"), arg("top_ids"), arg("top_probabilities"), arg("top_counts"), arg("top_columns"),
           arg("most_candidates"));
  m.def(
      "sample",
      [](const Sampling& sampling, const Shaping* shaping, Address stream) {
        sample(sampling, shaping, stream_of(stream));
      },
      arg("sampling"), arg("shaping"), py::kw_only(), arg("stream"), "Queue the sampling of a token for each row.");
  m.def(
      "philox_uniform",
      [](Address seeds, Address positions, Address numbers, int rows, Address stream) {
        philox_uniform(pointer<const int64_t>(seeds), pointer<const int32_t>(positions), pointer<double>(numbers), rows,
                       stream_of(stream));
      },
      py::kw_only(), arg("seeds"), arg("positions"), arg("numbers"), arg("rows"), arg("stream"),
      "Queue a random number for each row.");
  m.def(
      "penalise",
      [](Address logits, int64_t logits_stride, Address text, Address block_table, int64_t block_table_stride,
         int page_size, Address lengths, Address repetition, Address ranges, Address decays, Address frequency,
         Address presence, Address starts, Address scratch, int rows, int width, Address stream) {
        penalise(
            Penalties{pointer<float>(logits), logits_stride, pointer<const int32_t>(text),
                      pointer<const int32_t>(block_table), block_table_stride, page_size,
                      pointer<const int32_t>(lengths), pointer<const float>(repetition), pointer<const int32_t>(ranges),
                      pointer<const int32_t>(decays), pointer<const float>(frequency), pointer<const float>(presence),
                      pointer<const int32_t>(starts), pointer<int32_t>(scratch), rows, width},
            stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("logits_stride"), arg("text"), arg("block_table"), arg("block_table_stride"),
      arg("page_size"), arg("lengths"), arg("repetition"), arg("ranges"), arg("decays"), arg("frequency"),
      arg("presence"), arg("starts"), arg("scratch"), arg("rows"), arg("width"), arg("stream"),
      "Queue the penalties for tokens that occurred.");
  m.def(
      "enter_tokens",
      [](Address given, Address sampled, Address past, Address block_table, int64_t block_table_stride, int page_size,
         Address text, Address ids, Address lengths, int rows, Address stream) {
        enter_tokens(StepTokens{pointer<int32_t>(given), pointer<const int64_t>(sampled), pointer<int32_t>(past),
                                pointer<const int32_t>(block_table), block_table_stride, page_size,
                                pointer<int32_t>(text), pointer<int32_t>(ids), pointer<int32_t>(lengths), rows},
                     stream_of(stream));
      },
      py::kw_only(), arg("given"), arg("sampled"), arg("past"), arg("block_table"), arg("block_table_stride"),
      arg("page_size"), arg("text"), arg("ids"), arg("lengths"), arg("rows"), arg("stream"),
      "Queue the input tokens of a decode step.");
}

}  // namespace

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "CUDA kernels of constrain.";
  bind_bitmask(m);
  bind_rows(m);
  bind_products(m);
  bind_packed(m);
  bind_peers(m);
  bind_experts(m);
  bind_attention(m);
  bind_logits(m);
  bind_sampling(m);
}
