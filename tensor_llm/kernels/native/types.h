// What Python hands over, laid out as in ../structures.py. All memory is Python's.
#pragma once
#include <cstddef>
#include <cstdint>

enum Kind : int32_t { kBf16 = 0, kInt8 = 1, kInt4 = 2, kFloat = 3 };

// bfloat16 and float32: rows x columns as they are. int8 and int4: blocks of 16 rows, packed as
// quantization.py says; the columns are padded with zeros to whole groups.
struct Weight {
  const void* codes;
  const uint16_t* scales;
  // nullptr where there is none
  const float* bias;
  int64_t rows, columns;
  int32_t kind;
  // columns under one scale
  int32_t group;
};

struct Layer {
  const float* attention_norm;
  const float* mlp_norm;
  // norms of each head's queries and keys; nullptr where there are none
  const float* query_norm;
  const float* key_norm;
  Weight query, key, value, output, gate, up, down;
  // positions a token sees, itself included; 0 where all
  int64_t window;
};

struct Model {
  const Layer* layers;
  // of the part before the head
  const float* norm;
  // head_size / 2 radians a position
  const float* frequency;
  // of either no codes where another device has it
  Weight embedding, head;
  int64_t layer_count, hidden, heads, kv_heads, head_size, mlp;
  float epsilon;
  // what scaled rotary embeddings multiply cosines and sines with
  float rotary_scale;
};

// Keys and values in blocks of `block_tokens`, each token's heads together.
struct Cache {
  // one address a layer
  void* const* keys;
  void* const* values;
  // in elements
  int64_t block_stride, token_stride;
  int64_t block_tokens;
  // 0 float32, 1 bfloat16
  int32_t kind;
};

struct Batch {
  // nullptr where x has their embeddings already
  const int64_t* token;
  // (rows, hidden): what the layers read, and left as they leave it
  float* x;
  // place of each row's token in its sequence
  const int64_t* position;
  // which line of the table is each row's
  const int64_t* sequence;
  // (sequences, table_width): the blocks of each sequence, in order
  const int64_t* table;
  int64_t table_rows, table_width;
  int64_t rows;
  // the rows whose logits are wanted; may be none
  const int64_t* wanted;
  int64_t wanted_count;
  // (wanted_count, vocabulary)
  float* logits;
};
