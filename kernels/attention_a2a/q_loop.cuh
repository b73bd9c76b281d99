// The Q-loop of one output tile: a consumer warpgroup's 64 query rows against this CTA's KV tiles.
#pragma once

#include "attention_a2a/producer.cuh"
#include "attention_a2a/softmax.cuh"

namespace xstage {

// Reduction along the rows: 16 elements are 32 bytes, four steps a chunk of 128.
__device__ __forceinline__ void issue_scores(float (&scores)[kScores], u64 query, u64 key) {
    constexpr u32 kStepBytes = 2 * kProductDepth;
    constexpr u32 kSteps = kSwizzleRowBytes / kStepBytes;
    pin(scores);
    wgmma_fence();
#pragma unroll
    for (u32 step = 0; step < kHeadDim / kProductDepth; ++step) {
        const u32 chunk = step / kSteps;
        const u32 in_chunk = step % kSteps * kStepBytes;
        Wgmma<kBlockN>::from_shared(scores, operand_at(query, chunk * kWarpgroupRows * kSwizzleRowBytes + in_chunk),
                                    operand_at(key, chunk * kBlockN * kSwizzleRowBytes + in_chunk), step != 0);
    }
    wgmma_commit();
}

// Reduction across the rows of V.
__device__ __forceinline__ void issue_output(float (&output)[kOutputs], u32 (&probabilities)[kScores / 2], u64 value) {
    pin(output);
    pin(probabilities);
    wgmma_fence();
#pragma unroll
    for (u32 step = 0; step < kBlockN / kProductDepth; ++step) {
        const u32* p = &probabilities[4 * step];
        Wgmma<kHeadDim>::from_registers(output, p[0], p[1], p[2], p[3],
                                        operand_at(value, step * kProductDepth * kSwizzleRowBytes));
    }
    wgmma_commit();
}

// Warpgroups take turns at issuing overlapped products, so that one's softmax runs under another's products.
class Turns {
public:
    __device__ explicit Turns(u32 consumer) : mine_(kTurnBarrier + consumer) {
        next_ = kTurnBarrier + (consumer + 1) % kConsumers;
        if (kOverlap && consumer + 1 == kConsumers) {
            end();  // the first turn is the first warpgroup's
        }
    }

    __device__ __forceinline__ void begin() const { named_barrier_sync(mine_, 2 * kWarpgroupThreads); }
    __device__ __forceinline__ void end() const { named_barrier_arrive(next_, 2 * kWarpgroupThreads); }

private:
    u32 mine_;
    u32 next_;
};

class QLoop {
public:
    __device__ QLoop(Pipeline& pipeline, char* shared, u32 consumer, const AttentionArguments& arguments)
        : pipeline_(pipeline),
          turns_(consumer),
          kv_(kv_range((arguments.kv_tokens - 1) / kBlockN + 1)),
          first_columns_(min(kBlockN, arguments.kv_tokens - (kv_.first + kv_.tiles - 1) * kBlockN)),
          query_(swizzled_operand(shared_address(shared) + kQueryOffset + consumer * kWarpgroupTileBytes, 0)),
          key_(swizzled_operand(shared_address(shared) + kKeyOffset, 0)),
          value_(swizzled_operand(shared_address(shared) + kValueOffset, kBlockN * kSwizzleRowBytes)) {}

    // The output, to be normalised by `softmax`; Q has been copied in when it is called.
    __device__ __forceinline__ void run(float (&output)[kOutputs], OnlineSoftmax& softmax) {
        float scores[kScores];
        u32 probabilities[kScores / 2];

        wait_for_key();
        issue_next_scores(scores);
        wait_for_scores<0>(scores);
        if (first_columns_ != kBlockN) {
            mask_scores(scores, first_columns_);
        }
        softmax.update<true>(scores);
        pack_probabilities(probabilities, scores);
#pragma unroll
        for (u32 i = 0; i < kOutputs; ++i) {
            output[i] = 0;
        }
        for (u32 kv_tile = 1; kv_tile < kv_.tiles; ++kv_tile) {
            if constexpr (kOverlap) {
                overlapped_round(output, scores, probabilities, softmax);
            } else {
                round(output, scores, probabilities, softmax);
            }
        }
        if (kStaging != Staging::alias_query) {
            arrive_warp(pipeline_.query_empty);
        }
        issue_next_output(output, probabilities);
        wait_for_output(output, probabilities);
    }

private:
    // S = Q K^T of one KV tile and O += P V of the one before run together, and the softmax works on S as soon as it
    // is there.
    __device__ __forceinline__ void overlapped_round(float (&output)[kOutputs], float (&scores)[kScores],
                                                     u32 (&probabilities)[kScores / 2], OnlineSoftmax& softmax) {
        wait_for_key();
        turns_.begin();
        issue_next_scores(scores);
        issue_next_output(output, probabilities);
        turns_.end();
        wait_for_scores<1>(scores);
        softmax.update<false>(scores);
        wait_for_output(output, probabilities);
        pack_probabilities(probabilities, scores);
        softmax.rescale(output);
    }

    // One product after the other, so that P can take the registers of S; the other warpgroups' products run
    // meanwhile.
    __device__ __forceinline__ void round(float (&output)[kOutputs], float (&scores)[kScores],
                                          u32 (&probabilities)[kScores / 2], OnlineSoftmax& softmax) {
        issue_next_output(output, probabilities);
        wait_for_output(output, probabilities);
        wait_for_key();
        issue_next_scores(scores);
        wait_for_scores<0>(scores);
        softmax.update<false>(scores);
        pack_probabilities(probabilities, scores);
        softmax.rescale(output);
    }

    __device__ __forceinline__ void wait_for_key() { pipeline_.key_full[keys_.stage].wait(keys_.parity); }

    __device__ __forceinline__ void issue_next_scores(float (&scores)[kScores]) {
        issue_scores(scores, query_, operand_at(key_, keys_.stage * kKvBytes));
    }

    __device__ __forceinline__ void issue_next_output(float (&output)[kOutputs], u32 (&probabilities)[kScores / 2]) {
        pipeline_.value_full[values_.stage].wait(values_.parity);
        issue_output(output, probabilities, operand_at(value_, values_.stage * kKvBytes));
    }

    // `kLater`: products issued since.
    template <int kLater>
    __device__ __forceinline__ void wait_for_scores(float (&scores)[kScores]) {
        wgmma_wait<kLater>();
        pin(scores);
        release(pipeline_.key_empty, keys_);
    }

    __device__ __forceinline__ void wait_for_output(float (&output)[kOutputs], u32 (&probabilities)[kScores / 2]) {
        wgmma_wait<0>();
        pin(output);
        pin(probabilities);
        release(pipeline_.value_empty, values_);
    }

    __device__ __forceinline__ void release(Mbarrier* empty, KvPosition& position) {
        arrive_warp(empty[position.stage]);
        position.advance();
    }

    Pipeline& pipeline_;
    Turns turns_;
    KvRange kv_;
    u32 first_columns_;  // that exist, of the KV tile that comes first: the last one of the range
    u64 query_;
    u64 key_;
    u64 value_;
    KvPosition keys_;
    KvPosition values_;
};

}  // namespace xstage
