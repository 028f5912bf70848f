//! Philox 4x32-10, the counter-based generator of all random numbers.
//!
//! Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel
//! random numbers: as easy as 1, 2, 3", SC '11. The same integer steps are
//! printed into shaders, so every backend draws the same bits.

/// Multiplier of the first lane pair.
pub const M0: u32 = 0xD251_1F53;
/// Multiplier of the second lane pair.
pub const M1: u32 = 0xCD9E_8D57;
/// Weyl increment of the first key word.
pub const W0: u32 = 0x9E37_79B9;
/// Weyl increment of the second key word.
pub const W1: u32 = 0xBB67_AE85;
/// Rounds that the published test vectors use.
pub const ROUNDS: u32 = 10;

/// Four random words for one 128-bit counter under one 64-bit key.
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let p0 = u64::from(M0) * u64::from(c[0]);
        let p1 = u64::from(M1) * u64::from(c[2]);
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
        k = [k[0].wrapping_add(W0), k[1].wrapping_add(W1)];
    }
    c
}

/// The 64-bit seed as the two key words.
pub fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// Maps 32 random bits to a float in [0, 1): the top 24 bits over 2^24, exact
/// in f32 and so the same everywhere.
#[inline(always)]
pub fn unit_f32(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// A sequential stream of words for host-side draws (initialisation, shuffles).
#[derive(Clone, Debug)]
pub struct Stream {
    key: [u32; 2],
    stream: u32,
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Stream {
    /// The stream `stream` under `seed`; streams of one seed are independent.
    pub fn new(seed: u64, stream: u32) -> Self {
        Stream { key: key(seed), stream, block: 0, words: [0; 4], used: 4 }
    }

    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let counter = [self.block as u32, (self.block >> 32) as u32, self.stream, u32::MAX];
            self.words = philox4x32(counter, self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// A float in [0, 1).
    pub fn next_unit(&mut self) -> f32 {
        unit_f32(self.next_u32())
    }

    /// A float in [low, high).
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.next_unit()
    }

    /// A standard normal draw (Box–Muller, one of the pair is dropped so that
    /// the stream stays position-independent).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * f64::from(1.0 - self.next_unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * f64::from(self.next_unit());
        (radius * angle.cos()) as f32
    }

    /// An integer in [0, bound), unbiased (rejection). `bound` must not be 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        let reject_from = u32::MAX - (u32::MAX % bound + 1) % bound;
        loop {
            let draw = self.next_u32();
            if draw <= reject_from {
                return draw % bound;
            }
        }
    }
}

/// A stable 32-bit hash of a name (FNV-1a), which keys a parameter's stream so
/// that adding a layer does not change the others' initial values.
pub fn name_stream(name: &str) -> u32 {
    name.bytes().fold(0x811C_9DC5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors published with Random123.
    #[test]
    fn known_answers() {
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn bounded_draws_stay_below() {
        let mut s = Stream::new(7, 1);
        for bound in [1, 2, 3, 10, 1 << 31, u32::MAX] {
            assert!((0..100).all(|_| s.below(bound) < bound));
        }
    }
}
