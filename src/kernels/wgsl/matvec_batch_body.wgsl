// Body of matvec_batch: the tiles of one segment. Parameters as in matvec_rows. What a chunk of a type becomes is in
// matvec_batch_*, which include this: PART_decode gives group i + half of a chunk, with even i; or where they are paired both.
// A lane's chunks have its number modulo 4.
//! param PART_rows: u32
//! param PART_first: u32
//! param PART_plane0: u32
//! param PART_plane1: u32
//! param PART_plane2: u32
//! param PART_plane3: u32
//! param PART_up0: u32
//! param PART_up1: u32
//! param PART_up2: u32
//! param PART_up3: u32

const PART_STEPS: u32 = X_GROUPS / (PART_GROUPS * LANES);      // chunks of a lane in a window
var<private> PART_ahead: array<PART_chunk, 4>;                 // of its rows

fn PART_plane(j: u32) -> vec4<u32> {
    if (j == 0u) {
        return vec4<u32>(params.PART_plane0, params.PART_plane1, params.PART_plane2, params.PART_plane3);
    }
    return vec4<u32>(params.PART_up0, params.PART_up1, params.PART_up2, params.PART_up3);
}

fn PART_load_item(tile: u32, item: u32, chunk: u32, local: u32) -> PART_chunk {
    let row = min(tile * TILE + item / PER * SLOTS + lane_slot(local), params.PART_rows - 1u);
    return PART_load(PART_plane(item % PER), params.PART_first + row, chunk);
}

// All loads of a step, and no arithmetic.
fn PART_next(tile: u32, chunk: u32, local: u32) {
    PART_ahead[0] = PART_load_item(tile, 0u, chunk, local);
    if (ITEMS > 1u) {
        PART_ahead[1] = PART_load_item(tile, 1u, chunk, local);
    }
    if (ITEMS > 2u) {
        PART_ahead[2] = PART_load_item(tile, 2u, chunk, local);
        PART_ahead[3] = PART_load_item(tile, 3u, chunk, local);
    }
}

// What the first step of a tile needs, where no tile before it has loaded that.
fn PART_fetch(tile: u32, first: u32, local: u32) {
    if (!RESIDENT) {
        x_fetch(0u, local);
    }
    PART_next(tile, min(lane_of(local), (params.PART_k >> PART_SHIFT) - 1u), local);
}

struct PART_Row { first: vec4<u32>, second: vec4<u32>, scale: vec2<f32> } // quants i8; scale, least
struct PART_Rows { a: PART_Row, b: PART_Row, c: PART_Row, d: PART_Row }

struct PART_X { first: vec4<u32>, second: vec4<u32>, scale: vec2<f32> }

fn PART_x(n: u32, group: u32) -> PART_X {
    var x: PART_X;
    let block = n * (X_GROUPS / 2u) + (group >> 1u);
    x.first = x_words[n * X_GROUPS + place(group)];
    x.scale = x_scales[block];
    if (PART_PAIRED) {
        x.second = x_words[n * X_GROUPS + place(group + 1u)];
    } else if (PART_LEAST) {
        x.scale.y = x.scale.x * f32(dot16(0, x.first, vec4<u32>(0x01010101u))); // of this half
    }
    return x;
}

fn PART_add(sum: f32, w: PART_Row, x: PART_X) -> f32 {
    var q = dot16(ROUND, w.first, x.first);
    if (PART_PAIRED) {
        q = dot16(q, w.second, x.second);
    }
    let more = sum + (w.scale.x * x.scale.x) * (bitcast<f32>(q) - 12582912.0);
    if (PART_LEAST) {
        return more - w.scale.y * x.scale.y;
    }
    return more;
}

fn PART_column(sums: vec4<f32>, w: PART_Rows, x: PART_X) -> vec4<f32> { // of the items
    var s = sums;
    s.x = PART_add(s.x, w.a, x);
    if (ITEMS > 1u) {
        s.y = PART_add(s.y, w.b, x);
    }
    if (ITEMS > 2u) {
        s.z = PART_add(s.z, w.c, x);
        s.w = PART_add(s.w, w.d, x);
    }
    return s;
}

fn PART_columns(sums: mat4x4<f32>, n: u32, w: PART_Rows, group: u32) -> mat4x4<f32> {
    var s = sums;
    s[0] = PART_column(s[0], w, PART_x(n, group));
    s[1] = PART_column(s[1], w, PART_x(n + 1u, group));
    if (N_X > 2u) {
        s[2] = PART_column(s[2], w, PART_x(n + 2u, group));
        s[3] = PART_column(s[3], w, PART_x(n + 3u, group));
    }
    return s;
}

struct PART_Sums { a: mat4x4<f32>, b: mat4x4<f32>, c: mat4x4<f32>, d: mat4x4<f32> } // four vectors each: [vector][item]

fn PART_products(sums: PART_Sums, now: array<PART_chunk, 4>, chunk: u32, inner: u32, lane: u32, i: u32, half: u32) -> PART_Sums {
    var w: PART_Rows;
    w.a = PART_decode(now[0], chunk, lane, i, half);
    if (ITEMS > 1u) {
        w.b = PART_decode(now[1], chunk, lane, i, half);
    }
    if (ITEMS > 2u) {
        w.c = PART_decode(now[2], chunk, lane, i, half);
        w.d = PART_decode(now[3], chunk, lane, i, half);
    }
    let group = PART_group(inner, i + half);
    var s = sums;
    s.a = PART_columns(s.a, 0u, w, group);
    if (N_X > 4u) {
        s.b = PART_columns(s.b, 4u, w, group);
    }
    if (N_X > 8u) {
        s.c = PART_columns(s.c, 8u, w, group);
    }
    if (N_X > 12u) {
        s.d = PART_columns(s.d, 12u, w, group);
    }
    return s;
}

// PART_ahead holds the first step of this tile; in the end it holds that of tile `next`, unless that is NONE.
fn PART_tile(tile: u32, next: u32, local: u32) {
    var sums: PART_Sums;
    let n_chunk = params.PART_k >> PART_SHIFT;
    let n_window = select((params.k / 16u + X_GROUPS - 1u) / X_GROUPS, 1u, RESIDENT);
    let lane = lane_of(local);
    for (var window = 0u; window < n_window; window++) {
        if (!RESIDENT) {
            workgroupBarrier();
            x_keep(local);
            workgroupBarrier();
            if (window + 1u < n_window || next != NONE) {
                x_fetch(select(0u, window + 1u, window + 1u < n_window), local);
            }
        }
        for (var step = 0u; step < PART_STEPS; step++) {
            let inner = step * LANES + lane;
            let chunk = window * PART_STEPS * LANES + inner;
            let now = PART_ahead;
            let more = chunk + LANES < n_chunk;
            if (more || next != NONE) {
                PART_next(select(next, tile, more), select(min(lane, n_chunk - 1u), chunk + LANES, more), local);
            }
            if (chunk < n_chunk) {
                for (var i = 0u; i < PART_GROUPS; i += 2u) {
                    sums = PART_products(sums, now, chunk, inner, lane, i, 0u);
                    if (!PART_PAIRED) {
                        sums = PART_products(sums, now, chunk, inner, lane, i, 1u);
                    }
                }
            }
        }
    }
    workgroupBarrier();
    leave_all(0u, sums.a, local);
    if (N_X > 4u) {
        leave_all(1u, sums.b, local);
    }
    if (N_X > 8u) {
        leave_all(2u, sums.c, local);
    }
    if (N_X > 12u) {
        leave_all(3u, sums.d, local);
    }
    workgroupBarrier();
    for (var e = local; e < TILE * QUADS; e += WG) {
        let row = tile * TILE + e % TILE;
        let item = e % TILE / SLOTS * PER;
        let own = left(e / TILE, e % SLOTS, item);
        let twin = left(e / TILE, e % SLOTS, item + PER - 1u);
        for (var j = 0u; j < min(N_X, 4u); j++) {
            let n = x_first + e / TILE * 4u + j;
            if (row < params.PART_rows && n < params.n_x && e / TILE * 4u + j < N_X) {
                PART_store(row, n, vec2<f32>(own[j], twin[j]));
            }
        }
    }
    PART_finish(tile, local);
}
