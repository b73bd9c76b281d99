// How the two CTAs of a team exchange the outputs of their halves of KV: through each other's shared memory.
//
// A consumer whose rows the other CTA finishes stores its unfinished output there, and the softmax's state of its rows;
// the consumer of the same number merges them with its own. The buffer holds one tile's: it is free again when all
// warps have read it, and only the next tile's sender, if there is one, is told so. Hence nothing is under way to a
// CTA that ends.
//
// Asynchronous stores are of the generic proxy, as the threads' own accesses: barriers order both, without a proxy
// fence.
#pragma once

#include "attention_a2a/pipeline.cuh"
#include "attention_a2a/softmax.cuh"
#include "common/cluster.cuh"

namespace xstage {

class Partials {
public:
    __device__ Partials(Pipeline& pipeline, char* shared, u32 consumer)
        : pipeline_(pipeline), buffer_(shared_address(shared) + kPartialOffset), consumer_(consumer) {}

    // The output of this CTA's `index`-th tile of `tiles` goes to the other CTA, or that one's is merged into it. Says
    // whether these are finished rows.
    __device__ __forceinline__ bool merge(float (&output)[kOutputs], OnlineSoftmax& softmax, u32 index,
                                          u32 tiles) const {
        if constexpr (kKvSplits > 1) {
            if (!finishes(consumer_)) {
                send(output, softmax, index);
                return false;
            }
            receive(output, softmax, index);
            if (index + 1 < tiles) {
                release_buffer();
            }
        }
        return true;
    }

private:
    static constexpr u32 kVectors = kOutputs / 4;  // of a thread

    static __device__ __forceinline__ u32 other_part() { return team_part() ^ 1; }

    // Neighbouring threads' vectors are neighbours.
    static __device__ __forceinline__ u32 vector_place(u32 vector) {
        return (vector * kWarpgroupThreads + threadIdx.x % kWarpgroupThreads) * sizeof(FloatVector);
    }

    // Four threads share their rows, and their state.
    static __device__ __forceinline__ u32 state_place() {
        return kWarpgroupRows * kHeadDim * sizeof(float) +
               threadIdx.x % kWarpgroupThreads / 4 * sizeof(FloatVector);
    }

    __device__ __forceinline__ void send(const float (&output)[kOutputs], const OnlineSoftmax& softmax,
                                         u32 index) const {
        wait_in_cluster(pipeline_.partial_empty, (index + 1) % 2);
        const u32 buffer = address_in_cluster(buffer_, other_part());
        const u32 full = address_in_cluster(pipeline_.partial_full.address(), other_part());
#pragma unroll
        for (u32 i = 0; i < kVectors; ++i) {
            store_async(buffer + vector_place(i),
                        {output[4 * i], output[4 * i + 1], output[4 * i + 2], output[4 * i + 3]}, full);
        }
        const FloatVector state = softmax.state();
        if (threadIdx.x % 4 == 0) {
            store_async(buffer + state_place(), state, full);
        }
    }

    __device__ __forceinline__ void receive(float (&output)[kOutputs], OnlineSoftmax& softmax, u32 index) const {
        if (threadIdx.x % kWarpgroupThreads == 0) {
            pipeline_.partial_full.arrive_expecting(kPartialBytes);
        }
        wait_in_cluster(pipeline_.partial_full, index % 2);
        const MergeScales scales = softmax.merge(load_shared_floats(buffer_ + state_place()));
#pragma unroll
        for (u32 i = 0; i < kVectors; ++i) {
            const FloatVector other = load_shared_floats(buffer_ + vector_place(i));
            output[4 * i] = output[4 * i] * scales.mine[0] + other.x * scales.other[0];
            output[4 * i + 1] = output[4 * i + 1] * scales.mine[0] + other.y * scales.other[0];
            output[4 * i + 2] = output[4 * i + 2] * scales.mine[1] + other.z * scales.other[1];
            output[4 * i + 3] = output[4 * i + 3] * scales.mine[1] + other.w * scales.other[1];
        }
    }

    __device__ __forceinline__ void release_buffer() const {
        __syncwarp();
        if (threadIdx.x % kWarpThreads == 0) {
            arrive_in_cluster(address_in_cluster(pipeline_.partial_empty.address(), other_part()));
        }
    }

    Pipeline& pipeline_;
    u32 buffer_;
    u32 consumer_;
};

}  // namespace xstage
