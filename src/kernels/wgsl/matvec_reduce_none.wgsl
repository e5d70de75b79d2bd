// LANES is 1: a lane's sums are the row's.
fn reduce(sums: ptr<function, array<f32, ITEMS>>, local: u32) {
}
