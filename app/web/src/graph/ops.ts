/*
 * ops.ts - the calls of beryl_graph.h and beryl_nn.h that build, made from them by ops.mjs: edit neither by hand nor the comments, which are the headers'.
 */
import type { Dim, Type, Value } from "./graph.js";

/** Types of elements, in the header's order. */
export const TYPES = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "i32", "u32", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0", "tq2_0", "f64", "i8", "i16", "i64", "u8", "u16", "bool", "f8_e4m3", "f8_e5m2", "affine8", "affine4"] as const;

/** Words of enumerations, by number. */
export const ENUMS: Record<string, readonly string[]> = {
    resize: ["nearest", "nearest_middle", "linear", "linear_corners", "mean"],
    gate: ["glu", "swiglu", "geglu", "quick_geglu"],
    scan: ["sum", "prod", "max", "min"],
    fft_norm: ["backward", "forward", "ortho"],
    distance: ["euclid", "squared", "cosine"],
    optimiser_kind: ["sgd", "adam", "adamw", "rmsprop", "lion", "adagrad"],
    loss: ["mse", "l1", "huber", "bce", "kl", "cosine"],
};

/** Fields of structures, in order. */
export const STRUCTS: Record<string, readonly (readonly [string, string])[]> = {
    window: [["size", "u"], ["stride", "u"], ["dilation", "u"], ["padBefore", "u"], ["padAfter", "u"]],
    pool: [["mean", "b"], ["partial", "b"], ["inside", "b"]],
    sdpa: [["scale", "f"], ["cap", "f"], ["causal", "b"], ["window", "u"], ["first", "i"]],
    optimiser: [["kind", "e:optimiser_kind"], ["momentum", "f"], ["weightDecay", "f"], ["nesterov", "b"], ["beta1", "f"], ["beta2", "f"], ["eps", "f"], ["when", "v"]],
    selective_scan: [["x", "v"], ["dt", "v"], ["a", "v"], ["b", "v"], ["c", "v"], ["d", "v"], ["first", "v"]],
    gated_delta: [["q", "v"], ["k", "v"], ["v", "v"], ["decay", "v"], ["beta", "v"], ["first", "v"]],
};

/** Options; what is left out is 0 or false, of stride and dilation 1: beryl_window of the header. */
export interface Window {
    size?: number;
    stride?: number;
    dilation?: number;
    padBefore?: number;
    padAfter?: number;
}

/** Options; what is left out is 0 or false: beryl_pool of the header. */
export interface Pool {
    mean?: boolean;
    partial?: boolean;
    inside?: boolean;
}

/** Options; what is left out is 0 or false: beryl_sdpa of the header. */
export interface Sdpa {
    scale?: number;
    cap?: number;
    causal?: boolean;
    window?: number;
    first?: number;
}

/** Options; what is left out is 0 or false: beryl_optimiser of the header. */
export interface Optimiser {
    kind?: "sgd" | "adam" | "adamw" | "rmsprop" | "lion" | "adagrad";
    momentum?: number;
    weightDecay?: number;
    nesterov?: boolean;
    beta1?: number;
    beta2?: number;
    eps?: number;
    when?: Value | null;
}

/** Options; what is left out is 0 or false: beryl_selective_scan of the header. */
export interface SelectiveScan {
    x?: Value | null;
    dt?: Value | null;
    a?: Value | null;
    b?: Value | null;
    c?: Value | null;
    d?: Value | null;
    first?: Value | null;
}

/** Options; what is left out is 0 or false: beryl_gated_delta of the header. */
export interface GatedDelta {
    q?: Value | null;
    k?: Value | null;
    v?: Value | null;
    decay?: Value | null;
    beta?: Value | null;
    first?: Value | null;
}

/** The operations: what each gives, then what it takes, a word each. */
export const OPS = {
    extent: "x s u",
    dimSum: "d d d",
    dimProduct: "d d d",
    dimQuotient: "d d u",
    input: "v s t D",
    state: "v s t A",
    reshape: "v v D",
    permute: "v v A",
    expand: "v v D",
    narrow: "v v u u u u",
    split: "- v u u R",
    flip: "v v u",
    diagonal: "v v u u",
    windows: "v v u u u",
    squeeze: "v v u",
    unsqueeze: "v v u",
    gatherRows: "v v v f",
    gather: "v v v u",
    indexSelect: "v v v u",
    scatter: "v v v v u",
    scatterAdd: "v v v v u",
    indexAdd: "v v v v u",
    oneHot: "v v u",
    maskedFill: "v v v f",
    nonzero: "v v o",
    copy: "v v",
    pad: "v v u u u f",
    concat: "v V u",
    stack: "v V u",
    roll: "v v u u",
    tile: "v v u u",
    repeat: "v v u u",
    resize: "v v u u e:resize",
    iota: "v v u",
    tril: "v v i",
    triu: "v v i",
    add: "v v v",
    sub: "v v v",
    mul: "v v v",
    div: "v v v",
    neg: "v v",
    abs: "v v",
    square: "v v",
    sign: "v v",
    relu: "v v",
    mod: "v v v",
    fmod: "v v v",
    max: "v v v",
    min: "v v v",
    clamp: "v v f f",
    eq: "v v v",
    ne: "v v v",
    lt: "v v v",
    le: "v v v",
    gt: "v v v",
    ge: "v v v",
    logicalNot: "v v",
    isNan: "v v",
    where: "v v v v",
    cast: "v v t b",
    bitAnd: "v v v",
    bitOr: "v v v",
    bitXor: "v v v",
    bitNot: "v v",
    shl: "v v v",
    shr: "v v v",
    scale: "v v f",
    addScalar: "v v f",
    pow: "v v v",
    reciprocal: "v v",
    sqrt: "v v",
    rsqrt: "v v",
    exp: "v v",
    exp2: "v v",
    log: "v v",
    log2: "v v",
    round: "v v",
    floor: "v v",
    ceil: "v v",
    trunc: "v v",
    sin: "v v",
    cos: "v v",
    tan: "v v",
    asin: "v v",
    acos: "v v",
    atan: "v v",
    atan2: "v v v",
    sinh: "v v",
    cosh: "v v",
    tanh: "v v",
    erf: "v v",
    erfinv: "v v",
    sigmoid: "v v",
    silu: "v v",
    geluErf: "v v",
    geluTanh: "v v",
    quickGelu: "v v",
    softplus: "v v",
    mish: "v v",
    elu: "v v f",
    selu: "v v",
    leakyRelu: "v v f",
    hardswish: "v v",
    softcap: "v v f",
    geglu: "v v v",
    quickGeglu: "v v v",
    swiglu: "v v v",
    glu: "v v v",
    gated: "v v u e:gate",
    sum: "v v a b",
    mean: "v v a b",
    prod: "v v a b",
    amax: "v v a b",
    amin: "v v a b",
    any: "v v a b",
    all: "v v a b",
    norm: "v v a b",
    logsumexp: "v v a b",
    var: "v v a u b",
    std: "v v a u b",
    logSoftmax: "v v u",
    l2Norm: "v v u f",
    rmsNorm: "v v n f",
    layerNorm: "v v n n f",
    softmax: "v v",
    softmaxAlong: "v v u",
    batchNorm: "v v v v n n f",
    batchNormTraining: "v v n n f o o",
    sumOfSquares: "v V",
    groupNorm: "v v n n u f",
    cumsum: "v v u",
    cumprod: "v v u",
    cummax: "v v u",
    cummin: "v v u",
    scan: "v v u e:scan b b",
    argmax: "v v u b",
    argmin: "v v u b",
    sort: "v v u b o",
    argsort: "v v u b",
    topk: "v v u u o",
    weightedSum: "v v v",
    matmul: "v v v b b",
    einsum: "v s V",
    conv: "v v v W u",
    maxPool: "v v W",
    avgPool: "v v W",
    pool: "v v W S:pool",
    adaptiveAvgPool: "v v A",
    convTranspose: "v v v W m u",
    im2col: "v v W",
    key: "v q",
    randomBits: "v v u D",
    randomUniform: "v v u t f f D",
    randomNormal: "v v u t f f D",
    bernoulli: "v v u f D",
    categorical: "v v u v",
    xavierUniform: "v v u t f D",
    xavierNormal: "v v u t f D",
    kaimingUniform: "v v u t f D",
    kaimingNormal: "v v u t f D",
    fft: "v v u b e:fft_norm",
    rfft: "v v u e:fft_norm",
    irfft: "v v u u e:fft_norm",
    hann: "v u",
    stft: "v v n u u",
    istft: "v v n u u",
    welch: "v v n u u f",
    peaks: "v v u o",
    pairwiseDistance: "v v v e:distance",
    knn: "v v v u e:distance o",
    umapWeights: "v v v",
    sdpa: "v v v v n S:sdpa",
    localAttention: "v v v v n u f f",
    rotate: "v v V L b",
    linear: "v v v",
    linearId: "v v v v",
    rope: "v v v",
    setRows: "v v v v",
    kvWrite: "v v v v v",
    attention: "v v v v v v f u",
    attentionRange: "v v v v v v v f",
    gradient: "- v V R",
    recomputeBegin: "-",
    recomputeEnd: "-",
    detach: "v v",
    assign: "v v v",
    clip: "v V f R",
    optimise: "- V L v S:optimiser R",
    gradientScaled: "v v f V R",
    selectiveScan: "v S:selective_scan o",
    gatedDelta: "v S:gated_delta o",
    loss: "v e:loss v v f",
    crossEntropy: "v v v",
    linearCrossEntropy: "v v v v f",
    nll: "v v v",
    triplet: "v v v v f",
    dropout: "v v u v f",
    optimiseQ8: "- V L v S:optimiser f v u R",
} as const;

/** Operations on a value. */
export interface ValueOps {
    /** To a shape with the same elements in every run. Dimensions are split and joined where all but the outermost of them are constants: [n, 3, d] is [3 * n, d]; [n, m] is not [n * m], since the rows of a run lie as far apart as m's bound says. A view that lies so that strides cannot say it is copied first. */
    reshape(dims: readonly (number | Dim)[]): Value;
    /** Axes in another order, axes [rank]: axis i of the result is axis axes[i] of x. */
    permute(axes: readonly number[]): Value;
    /** The same elements again and again: axes of 1, and axes in front that x has not, at any size. */
    expand(dims: readonly (number | Dim)[]): Value;
    /** `size` elements of a constant axis: start, start + step, start + 2 * step ... */
    narrow(axis: number, start: number, size: number, step: number): Value;
    /** A constant axis in n parts of one size. parts [n]: zeros after an error. */
    split(axis: number, n: number): Value[];
    flip(axis: number): Value;
    /** The elements with the same index along both axes: as the last axis, in place of the two. Axes of constants, of which the smaller counts, or of one extent. */
    diagonal(axis: number, other: number): Value;
    /** Windows of `size` elements of an axis, one every `step` elements, as far as they are whole; they may overlap. The axis becomes their number, and a last axis what is in each: [n, 9] with size 3 and step 2 is [n, 4, 3]. An axis that a run sizes has to be padded by size - 1 at least. */
    windows(axis: number, size: number, step: number): Value;
    /** drops an axis of size 1 */
    squeeze(axis: number): Value;
    /** an axis of size 1, as that axis of the result */
    unsqueeze(axis: number): Value;
    /** table [r, d] or [r], ids I32 [n] or [n, m] -> [n, d] and so on, times `factor`. An id out of range is 0. */
    gatherRows(ids: Value, factor: number): Value;
    /** By index along an axis: x of any type without blocks, indices I32 or I64. An index below 0, or from the size of the axis on, is of no element: what is gathered there is 0, what is scattered there is left out. Indices do not count from the end. gather: indices of x's rank, along other axes as long as x or shorter (an extent: the same) -> an element for each index, the one with that index along the axis and the same place elsewhere. index_select: ids of any rank take the place of the axis: [2, r, 3] by [n, m] along 1 is [2, n, m, 3]. */
    gather(indices: Value, axis: number): Value;
    indexSelect(ids: Value, axis: number): Value;
    /** x, but with updates at the places from which gather would read: updates of x's type and the shape of the indices. Where several go to one place: scatter takes the one with the highest place along the axis; scatter_add (numbers) adds all to what x has, F16 and BF16 in F32, integers wrap; both give the same bits in every run. index_add: ids [n], updates as x but n along the axis: rows of a table, with axis 0. UNSUPPORTED: 2^31 indices or 2^32 updates and more. */
    scatter(indices: Value, updates: Value, axis: number): Value;
    scatterAdd(indices: Value, updates: Value, axis: number): Value;
    indexAdd(ids: Value, updates: Value, axis: number): Value;
    /** ids I32 or I64 [..] -> BOOL [.., depth]: true where the place along the last axis is the id. */
    oneHot(depth: number): Value;
    /** mask, BOOL, broadcast against x ? value, as cast to x's type : x */
    maskedFill(mask: Value, value: number): Value;
    /** Places of what is not 0 (NaN is not), x of at least one axis, in the order of its elements: I32 [as many as x has at most, rank], and I32 [1], how many there are. Behind them the list is -1. */
    nonzero(): [Value, Value];
    /** a view without gaps */
    copy(): Value;
    /** `before` elements of `value` before an axis, `after` after it */
    pad(axis: number, before: number, after: number, value: number): Value;
    /** Element i of the result is element i - by, modulo the size of the axis, a constant. */
    roll(axis: number, by: number): Value;
    /** All of an axis `times` times, and each element of it `times` times: copies. */
    tile(axis: number, times: number): Value;
    repeat(axis: number, times: number): Value;
    /** A constant axis of x at another size, by a beryl_resize: pictures along each of their axes. Of integers and BOOL the nearest alone. */
    resize(axis: number, size: number, how?: "nearest" | "nearest_middle" | "linear" | "linear_corners" | "mean"): Value;
    /** I32 of x's shape: where each element is along an axis, from 0 on. x is not read. */
    iota(axis: number): Value;
    /** Of the last two axes what has column - row up to (tril) or from (triu) `diagonal` on, else 0. */
    tril(diagonal: number): Value;
    triu(diagonal: number): Value;
    /** Pointwise. Inputs are broadcast against each other from the right: sizes are the same or 1, or leading axes are missing. They have one type, which the result has too; others are cast first (UNSUPPORTED). F16 and BF16 are computed in F32. Numbers: floats and integers. Integers wrap; divided by 0 they are 0. */
    add(b: Value): Value;
    sub(b: Value): Value;
    mul(b: Value): Value;
    div(b: Value): Value;
    neg(): Value;
    abs(): Value;
    square(): Value;
    sign(): Value;
    relu(): Value;
    /** The rest of a / b, with b's sign (mod) or a's (fmod). */
    mod(b: Value): Value;
    fmod(b: Value): Value;
    /** NaN where one is. */
    max(b: Value): Value;
    min(b: Value): Value;
    /** x, but at least `low` and at most `high`; NaN stays. */
    clamp(low: number, high: number): Value;
    /** -> BOOL. NaN equals nothing and is neither less nor greater. */
    eq(b: Value): Value;
    ne(b: Value): Value;
    lt(b: Value): Value;
    le(b: Value): Value;
    gt(b: Value): Value;
    ge(b: Value): Value;
    /** -> BOOL: x is 0; x is not a number (floats). */
    logicalNot(): Value;
    isNan(): Value;
    /** condition, BOOL ? a : b, of any type. */
    where(a: Value, b: Value): Value;
    /** x as another type. What is out of an integer's range saturates, NaN becomes 0; wrap: integers keep their low bits. BOOL is 0 or 1; to BOOL: x is not 0. */
    cast(type: Type, wrap?: boolean): Value;
    /** Integers, and of BOOL logical. */
    bitAnd(b: Value): Value;
    bitOr(b: Value): Value;
    bitXor(b: Value): Value;
    bitNot(): Value;
    /** Integers: a shifted by b modulo its bits; to the right signed ones copy their sign. */
    shl(b: Value): Value;
    shr(b: Value): Value;
    /** Floats. */
    scale(factor: number): Value;
    addScalar(number: number): Value;
    pow(b: Value): Value;
    reciprocal(): Value;
    sqrt(): Value;
    rsqrt(): Value;
    exp(): Value;
    exp2(): Value;
    log(): Value;
    log2(): Value;
    /** To whole numbers; round: ties to even. */
    round(): Value;
    floor(): Value;
    ceil(): Value;
    trunc(): Value;
    /** atan2: the angle of the point (b, a). */
    sin(): Value;
    cos(): Value;
    tan(): Value;
    asin(): Value;
    acos(): Value;
    atan(): Value;
    atan2(b: Value): Value;
    sinh(): Value;
    cosh(): Value;
    tanh(): Value;
    erf(): Value;
    erfinv(): Value;
    /** Activations. gelu_erf: the exact form; quick_gelu: x * sigmoid(1.702 x); mish: x times tanh(softplus(x)); elu: below 0 alpha * (exp(x) - 1); hardswish: x * clamp(x + 3, 0, 6) / 6; softcap: cap * tanh(x / cap). */
    sigmoid(): Value;
    silu(): Value;
    geluErf(): Value;
    geluTanh(): Value;
    quickGelu(): Value;
    softplus(): Value;
    mish(): Value;
    elu(alpha: number): Value;
    selu(): Value;
    leakyRelu(slope: number): Value;
    hardswish(): Value;
    softcap(cap: number): Value;
    /** The activation of gate times up; glu: a * sigmoid(b). */
    geglu(up: Value): Value;
    quickGeglu(up: Value): Value;
    swiglu(up: Value): Value;
    glu(b: Value): Value;
    /** The same of the halves of a constant axis of x, the first one as the first operand. */
    gated(axis: number, gate?: "glu" | "swiglu" | "geglu" | "quick_geglu"): Value;
    /** Reductions over axes [n_axes], over all where there are none given. keep: they stay, with size 1. Floats are summed in F32 (F64 in F64); integers wrap: cast them first where that is too small. amax and amin: NaN where there is one, and of nothing the smallest and largest number. any and all take and give BOOL. norm: the root of the sum of squares; logsumexp: log(sum(exp(x))). */
    sum(axes?: readonly number[], keep?: boolean): Value;
    mean(axes?: readonly number[], keep?: boolean): Value;
    prod(axes?: readonly number[], keep?: boolean): Value;
    amax(axes?: readonly number[], keep?: boolean): Value;
    amin(axes?: readonly number[], keep?: boolean): Value;
    any(axes?: readonly number[], keep?: boolean): Value;
    all(axes?: readonly number[], keep?: boolean): Value;
    norm(axes?: readonly number[], keep?: boolean): Value;
    logsumexp(axes?: readonly number[], keep?: boolean): Value;
    /** Divided by how many there are less the correction (1: of a sample). */
    var(axes: readonly number[], correction: number, keep?: boolean): Value;
    std(axes: readonly number[], correction: number, keep?: boolean): Value;
    /** Along an axis: x less its logsumexp; x over sqrt(sum of squares + eps). */
    logSoftmax(axis: number): Value;
    l2Norm(axis: number, eps: number): Value;
    /** weight [d], 0: none */
    rmsNorm(weight: Value | null, eps: number): Value;
    /** (x - mean) / sqrt(variance + eps) * weight + bias, both [d]; bias, or both: 0: none */
    layerNorm(weight: Value | null, bias: Value | null, eps: number): Value;
    softmax(): Value;
    /** Over any axis; a view where that is not the last. */
    softmaxAlong(axis: number): Value;
    /** x [n, c, ..]: (x - mean) / sqrt(variance + eps) * weight + bias, each [c] of x's type or, of halves, F32; weight, bias: 0: none. training: mean and variance are x's own over all axes but c, by their number (no correction), and given in x's type where the pointers are not NULL. */
    batchNorm(mean: Value, variance: Value, weight: Value | null, bias: Value | null, eps: number): Value;
    batchNormTraining(weight: Value | null, bias: Value | null, eps: number): [Value, Value, Value];
    /** x [n, c, ..]: as layer_norm, over each of `groups` groups of c / groups channels and all that follows them; weight and bias [c], or 0. */
    groupNorm(weight: Value | null, bias: Value | null, groups: number, eps: number): Value;
    /** Along any axis: each element with all before it. */
    cumsum(axis: number): Value;
    cumprod(axis: number): Value;
    cummax(axis: number): Value;
    cummin(axis: number): Value;
    /** One of them with all options: exclusive: with all before it alone, of the first 0, 1, or the infinity that loses; backwards: from the end. The axis of either is a constant. */
    scan(axis: number, scan?: "sum" | "prod" | "max" | "min", exclusive?: boolean, backwards?: boolean): Value;
    /** Index, I32, of the largest or smallest along an axis, of any numbers, or of a NaN if there is one; ties: the lowest index; of no elements: -1. keep: the axis stays, with size 1. */
    argmax(axis: number, keep?: boolean): Value;
    argmin(axis: number, keep?: boolean): Value;
    /** The elements along an axis, of any length and any numbers, rising or falling, and the indices I32 that they had (NULL: not wanted). Ties keep their order, 0 and -0 are alike, NaN is larger than all numbers. argsort: the indices alone. UNSUPPORTED: more than 2^30 along the axis. */
    sort(axis: number, descending?: boolean): [Value, Value];
    argsort(axis: number, descending?: boolean): Value;
    /** The k largest along an axis of any length, falling, and their indices I32 (NULL: not wanted): the axis has size k. Ties: the lower index first; NaN counts as -infinity. An axis that a run sizes has to be the last of F32 [n, m]: where it is shorter than k, -infinity and -1 follow its last. MISUSE: k is 0 or more than the axis has. */
    topk(k: number, axis: number): [Value, Value];
    /** [n, u, d], [n, u] -> [n, d] */
    weightedSum(weights: Value): Value;
    /** a [.., m, k] times b [.., k, n] -> [.., m, n]; transposed: a [.., k, m], b [.., n, k]. Axes in front are broadcast. a or b may be one vector [k]: the result has no m, or no n. */
    matmul(b: Value, transposeA?: boolean, transposeB?: boolean): Value;
    /** x [n, c, in..] with n_axis (1 to 3) axes after c, weight [out, c / groups, sizes..] -> [n, out, ..]. windows [n_axis]: size is the weight's, whatever it says; around x lie zeros. */
    conv(weight: Value, windows: readonly Window[], groups: number): Value;
    /** The largest and the mean of each window; means count zeros around x. */
    maxPool(windows: readonly Window[]): Value;
    avgPool(windows: readonly Window[]): Value;
    /** means count elements of x alone, not the zeros around it */
    pool(windows: readonly Window[], how?: Pool): Value;
    /** Means of parts of axes, sizes [n_axis] parts of each, from floor(i * in / size) to before ceil((i + 1) * in / size). */
    adaptiveAvgPool(sizes: readonly number[]): Value;
    /** x [n, c, in..], weight [c, out / groups, sizes..] -> [n, out, ..]: the gradient of a convolution with that weight. Element i of an axis reaches from i * stride - pad_before on; pad_after: cut off at the end; more [n_axis], NULL: none: further elements after it. in..: constants. */
    convTranspose(weight: Value, windows: readonly Window[], more: readonly number[] | null, groups: number): Value;
    /** What is in each window, in memory: [n, c * sizes.., windows..]. A convolution needs none. */
    im2col(windows: readonly Window[]): Value;
    /** U32, any of them */
    randomBits(stream: number, dims: readonly (number | Dim)[]): Value;
    /** F32, F16, BF16. From 0 to 1: multiples of 2^-24, 2^-11, 2^-8 below 1, the same bits on every device; else these of F32 times (high - low) plus low, which may be rounded to high. */
    randomUniform(stream: number, type: Type, low: number, high: number, dims: readonly (number | Dim)[]): Value;
    /** F32, F16, BF16: with mean 0 and deviation 1 within 1e-6 of the exact ones, relative above 1 */
    randomNormal(stream: number, type: Type, mean: number, deviation: number, dims: readonly (number | Dim)[]): Value;
    /** BOOL: is the uniform number below `chance`? */
    bernoulli(stream: number, chance: number, dims: readonly (number | Dim)[]): Value;
    /** logits [n, m] F32 -> I32 [n]: an index of each row with the probability that softmax says */
    categorical(stream: number, logits: Value): Value;
    /** First weights [out, in, ..] of a layer: of deviation gain * sqrt(2 / (fan_in + fan_out)) (xavier) or gain / sqrt(fan_in) (kaiming), normal or uniform; fan_in: in times all that follows. */
    xavierUniform(stream: number, type: Type, gain: number, dims: readonly (number | Dim)[]): Value;
    xavierNormal(stream: number, type: Type, gain: number, dims: readonly (number | Dim)[]): Value;
    kaimingUniform(stream: number, type: Type, gain: number, dims: readonly (number | Dim)[]): Value;
    kaimingNormal(stream: number, type: Type, gain: number, dims: readonly (number | Dim)[]): Value;
    /** x [.., n, .., 2] -> the same shape */
    fft(axis: number, inverse?: boolean, norm?: "backward" | "forward" | "ortho"): Value;
    /** x [.., n, ..], real -> the first half: [.., n / 2 + 1, .., 2] */
    rfft(axis: number, norm?: "backward" | "forward" | "ortho"): Value;
    /** and back: x [.., n / 2 + 1, .., 2] -> [.., n, ..], real; the imaginary parts of what is its own conjugate count as 0 */
    irfft(axis: number, n: number, norm?: "backward" | "forward" | "ortho"): Value;
    stft(window: Value | null, size: number, step: number): Value;
    istft(window: Value | null, size: number, step: number): Value;
    /** Welch's power spectrum of x [.., n], `rate` samples a second: density at size / 2 + 1 frequencies of a second, one side for both; parts as of stft, each less its mean. */
    welch(window: Value | null, size: number, step: number, rate: number): Value;
    /** x [n, m] F32, not below 0 -> the k largest peaks [n, k], falling, and their indices I32 [n, k]: above the element before and not below the one after; the ends are none. 0 where there are fewer. */
    peaks(k: number): [Value, Value];
    /** a [n, d], b [m, d] -> [n, m] */
    pairwiseDistance(b: Value, kind?: "euclid" | "squared" | "cosine"): Value;
    /** x [m, d], queries [n, d], F32 -> distances to the k nearest of x [n, k], rising, and their indices I32 [n, k]; ties: the lower index first */
    knn(queries: Value, k: number, kind?: "euclid" | "squared" | "cosine"): [Value, Value];
    /** UMAP's fuzzy graph: of what knn gives of x and itself, [n, k] with k from 2 on, n constant, the symmetric weights [n, n] of pairs, 0 to 1. Of row i the weight of index j is exp(-(distance - rho) / sigma), 1 where that is above 1, 0 of i itself; rho: the smallest distance above 0; sigma: such that all but the first sum to log2(k), at least a thousandth of the row's mean distance (of all, where rho is 0). Pairs: a + b - a b of both directions. */
    umapWeights(indices: Value): Value;
    /** the place of row 0 among the columns */
    sdpa(k: Value, v: Value, mask?: Value | null, how?: Sdpa): Value;
    /** q and k [.., n, d], v [.., n, e] of F32, F16 or BF16 -> [.., n, e]: each row over itself and the window - 1 (below 65,535) rows before it, in F32. far [.., window, d], 0: none: relative positions; q times row i of it is added to the score of what is i rows before. The scores, times scale, are capped as above (cap 0: not). Work and memory are n * window. */
    localAttention(k: Value, v: Value, far: Value | null, window: number, scale: number, cap: number): Value;
    /** Rotation by position, of floats: n (1 to 4) parts of x [.., d], one after another, each by its own angles: cosines and sines [n], each [.., r], broadcast against x, turn 2 * r elements. Element i is turned with i + r of its part; pairs: 2 * i with 2 * i + 1. What lies after the parts stays. Two parts by column and row: axial positions in two dimensions. */
    rotate(cosines: readonly Value[], sines: readonly Value[], pairs?: boolean): Value;
    /** x [.., k] times transposed w [m, k] -> [.., m] of the type of x: F32, halves; w of any type. */
    linear(w: Value): Value;
    /** x [n, u or 1, k], each with the matrix of w [e, m, k] that ids I32 [n, u] names -> [n, u, m]. An id out of range is 0. */
    linearId(w: Value, ids: Value): Value;
    /** x [n, h, d], angles [n, 2, d / 2] (cosines, sines): element i turned with element i + d / 2. */
    rope(angles: Value): Value;
    /** state [r] or [r, d] I32 or F32; x [n] or [n, d]; index I32 [n]: state[index] = x, but where the index is out of range. Gives the state as it then is. */
    setRows(x: Value, index: Value): Value;
    /** cache, a state [n_slot, n_row, h, d] of F32, F16 or Q8_0; x [n, h, d]; slot, pos I32 [n]: cache[slot, pos modulo n_row] = x, but where pos is negative or slot out of range. Gives the cache as it then is. */
    kvWrite(x: Value, slot: Value, pos: Value): Value;
    /** q [n, H, d] over caches as kv_write left them: a row sees positions max(0, pos - window + 1) to pos of its slot (window 0: from 0), of these the last n_row; query head i reads head i * h / H. Zeros where pos is negative or slot out of range. -> [n, H, d] */
    attention(k: Value, v: Value, slot: Value, pos: Value, scale: number, window: number): Value;
    /** The same, but each row says which positions it sees: first to last, both I32 [n]; of these the last n_row. They may lie after its own: a picture's block sees all of itself, packed sequences begin where theirs does, padding is left out, all rows of an encoder see all. Zeros where first is above last. Of both operations k and v may also be F32 or F16 values of the run instead of caches, [1, m, h, d] (views, as long as elements of a head are neighbours), slots 0: a row then sees positions below the run's m. */
    attentionRange(k: Value, v: Value, slot: Value, first: Value, last: Value, scale: number): Value;
    /** Adds the backward pass of a loss, a float of one element, and gives the gradient towards each of values [n] (floats: inputs, states, weights, results, views; each as used by what was built up to here), of its type and shape: zeros where the loss does not depend on it. gradients [n]: zeros after an error. The pass is operations like any other, so a gradient may be differentiated again; sums are made in one order, the same bits in every run on a device. Ties and kinks are PyTorch's: relu and abs have 0 at 0, the largest of equals share (amax evenly, max half each), clamp passes its ends. MISUSE: another loss, values that are no floats, a state that was changed after the loss read it. UNSUPPORTED: an operation without a gradient, by name: those that docs/ operations.md does not mark, and attention over caches; over k and v of the run it needs memory that grows with q, k and v. cumprod, and prod along an axis that a run sizes, need memory of the square of the axis. */
    gradient(values: readonly Value[]): Value[];
    /** x, towards which no gradient goes: a copy. */
    detach(): Value;
    /** A state becomes x, of its type and shape, in every run. Gives the state as it then is: reading that value orders the read; what was built before reads the state as it was. */
    assign(x: Value): Value;
    /** Gradients where some of the numbers are halves: of the loss times a scale, and divided by it: F32 [n]. Gives whether all are finite, BOOL [1]: beryl_optimiser.when. The scale, the state "loss.scale", is `first` (0: 65,536) at first, half of itself after gradients that are not, twice itself after 2,000 runs of those that are; from 1 to 2^24. */
    gradientScaled(first: number, values: readonly Value[]): [Value, Value[]];
    /** -log(softmax(logits)[target]) of each row, safe for logits of any size: logits [n, classes] of floats, targets I32 [n] -> [n], F32 (F64 of F64). 0, also as a gradient, where the target is no class: -1 for what is to be ignored. */
    crossEntropy(targets: Value): Value;
    /** The same of logits that are x [n, d], floats, times w [classes, d], of any type, each cap * tanh(logit / cap) where there is a cap (0: none). They are made in pieces of classes, and again for gradients, towards x and towards w where that is floats: no [n, classes] are in memory. */
    linearCrossEntropy(w: Value, targets: Value, cap: number): Value;
    /** logs, logarithms of chances, floats [n, classes], targets I32 [n] -> -logs[target] [n]; 0 where the target is no class. */
    nll(targets: Value): Value;
    /** Rows [.., d] of one type and shape -> [..]: max(0, |anchor - same| - |anchor - other| + margin); distances are of Euclid, with 1e-6 added to each difference. */
    triplet(same: Value, other: Value, margin: number): Value;
    /** Each element 0 with this chance (0 to below 1), else divided by 1 - chance; key and stream as of random numbers. */
    dropout(stream: number, x: Value, chance: number): Value;
}

/** Operations that begin with no value. */
export interface GraphOps {
    /** A size that varies from run to run, from 0 to `bound`, which is not 0. At most 32, those below included. Names are copied, here and below. */
    extent(name: string, bound: number): Dim;
    /** a + b, a * b, and a / divisor rounded up. Of constants a constant; else an extent that each run computes, whose bound is what the bounds give. Equal expressions are the same extent, however they were made: a + a and 2 * a, half of a half and a quarter. Constants are dimensions too: n + 1 is beryl_graph_dim_sum(g, (beryl_dim){64, n}, (beryl_dim){1, 0}). MISUSE: an extent of another graph, a divisor of 0, a size of 0. UNSUPPORTED: a bound above 2^32 - 1, also of what is divided; more than 32 extents; an expression of more than 6 terms, or of more than 4 extents in one. {0, 0} after an error. */
    dimSum(a: number | Dim, b: number | Dim): Dim;
    dimProduct(a: number | Dim, b: number | Dim): Dim;
    dimQuotient(a: number | Dim, divisor: number): Dim;
    /** Written before a run; of any type without blocks, up to 10 dimensions. */
    input(name: string, type: Type, dims: readonly (number | Dim)[]): Value;
    /** Kept from run to run, zero at first; F32, I32, I16, and as caches F16 and Q8_0. As many dimensions as weights. */
    state(name: string, type: Type, dims: readonly number[]): Value;
    /** x [n], joined along an axis; other dimensions are the same. stack: of one shape, along a new axis. */
    concat(x: readonly Value[], axis: number): Value;
    stack(x: readonly Value[], axis: number): Value;
    /** The sum of the squares of all elements of x [n], floats of any shapes -> []: of halves in F32. */
    sumOfSquares(x: readonly Value[]): Value;
    /** "bij,bjk->bik": a letter for each axis of x [n], n up to 8, and of the result; axes of one letter go together, those that the result has not are summed. */
    einsum(letters: string, x: readonly Value[]): Value;
    /** Random numbers by Threefry-2x32-20: an element's hang on the key, U32 [2], the stream and its place as the bounds say, and on nothing else. Draws with one key take different streams; a key that is an input makes other numbers each run. A key of a seed, the same in all runs: */
    key(seed: number | bigint): Value;
    /** Spectra of parts: `size` elements of the last axis of x [.., n], each part `step` after the one before, as far as they are whole, times a window [size] (0: none), by rfft: -> [.., parts, size / 2 + 1, 2]. istft: the signal of them, [.., (parts - 1) * step + size], divided by the sum of squared windows. hann: 0.5 - 0.5 * cos(2 pi i / size), F32 [size]. */
    hann(size: number): Value;
    /** What is built between is a segment, as a layer is: gradients of what is built later compute its values again instead of keeping them until then. MISUSE: an end without a begin, a gradient inside. UNSUPPORTED: a segment or a change of a state inside. */
    recomputeBegin(): [];
    recomputeEnd(): [];
    /** x [n], of any shapes, times min(1, norm / (theirs + 1e-6)): clipped [n], which may be x. Gives theirs: the root of the sum of all their squares, []. */
    clip(x: readonly Value[], norm: number): [Value, Value[]];
    /** A step for parameters [n], states of F32, by gradients [n] of their shapes (halves are computed in F32), with a rate, one F32: an input, or a value of the graph. What the optimiser keeps are states named after the parameter: "w.momentum", "w.mean", "w.square"; all share "optimiser.steps". updated [n], NULL: not wanted: the parameters as they then are. */
    optimise(parameters: readonly Value[], gradients: readonly Value[], rate: Value, how?: Optimiser): Value[];
    /** -> [.., t, e], of x's type; last (NULL: not wanted): h after the last step, [.., e, n]: t is then a constant. */
    selectiveScan(scan?: SelectiveScan): [Value, Value];
    /** -> [.., t, f], of q's type; last (NULL: not wanted): s after the last step, [.., d, f]. */
    gatedDelta(rule?: GatedDelta): [Value, Value];
    /** -> of x's shape, of COSINE without the last axis; delta: of HUBER. */
    loss(kind: "mse" | "l1" | "huber" | "bce" | "kl" | "cosine", x: Value, target: Value, delta: number): Value;
    /** beryl_graph_optimise of ADAM and ADAMW whose moments of a parameter are one state, "w.moments" of I16: 2 bytes an element, not 8. The mean square is kept as a logarithm, the mean by its part of the root of that, both rounded by chance: key, another one in every run, and streams from `stream` on, one a parameter, as of random numbers. No gradient is beyond `most` in size (the norm of beryl_graph_clip); beta1^2 is below beta2. */
    optimiseQ8(parameters: readonly Value[], gradients: readonly Value[], rate: Value, how: Optimiser, most: number, key: Value, stream: number): Value[];
}
