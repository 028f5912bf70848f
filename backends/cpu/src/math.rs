//! Elementary functions without branches, so that loops over them vectorise.
//! Errors are given against float64 over the whole range.

/// e^x, within 2 ulp; 0 below −87.3 (results that would be subnormal), ∞ above 88.7.
///
/// x = n·ln 2 + r with |r| ≤ ln 2 / 2; e^r by its Taylor series to r⁷ (the
/// remainder is below 2⁻²⁷).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // NaN stays NaN: min and max would drop it, comparisons keep it.
    let clamped = if x < -87.336_54 { -87.336_54 } else { x };
    let clamped = if clamped > 88.722_84 { 88.722_84 } else { clamped };
    // Adding 1.5·2²³ rounds to an integer in the low bits.
    let shifted = clamped * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    let p = p * r + 1.0;
    // 2ⁿ in two factors, since n may be 128. The low bits of the shifted number
    // are n: a cast of n, which saturates, would cost more than all the rest.
    let n = shifted.to_bits().wrapping_sub(12_582_912.0f32.to_bits()) as i32;
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) as u32) << 23);
    let y = p * power(n >> 1) * power(n.wrapping_sub(n >> 1));
    let y = if x < -87.336_54 { 0.0 } else { y };
    if x > 88.722_84 { f32::INFINITY } else { y }
}

/// Natural logarithm, within 2 ulp; NaN below 0, −∞ at 0. Subnormal x counts
/// as 0.
///
/// x = 2ᵉ·m with m in [√½, √2); ln m = 2·artanh((m − 1)/(m + 1)) by its series.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let bits = x.to_bits() as i32;
    let e = (bits - 0x3f35_04f3) >> 23;
    let m = f32::from_bits((bits - (e << 23)) as u32);
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let series =
        z * (0.666_666_7 + z * (0.4 + z * (0.285_714_3 + z * (0.222_222_2 + z * 0.181_818_2))));
    let e = e as f32;
    let y = e * 0.693_359_4 + (e * -2.121_944_4e-4 + (f - (f - series) * s));
    // ln m = 2s + s·series' with 2s = f − f·s: the difference keeps precision.
    let y = if x < f32::MIN_POSITIVE { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    let y = if x == f32::INFINITY { x } else { y };
    if x.is_nan() { x } else { y }
}

/// tanh, within 4 ulp: a series near 0, else by e^−2|x|.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    // tanh x = x + x³·P(x²) for |x| < 0.625 (minimax, Cephes' tanhf).
    let p = -5.704_988_7e-3;
    let p = p * z + 2.063_909e-2;
    let p = p * z - 5.373_971_6e-2;
    let p = p * z + 1.333_144_2e-1;
    let p = p * z - 3.333_327_9e-1;
    let near = p * z * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    let y = if a < 0.625 { near } else { far.copysign(x) };
    if x.is_nan() { x } else { y }
}

/// erf, within 2e-7 absolutely: a series for |x| < 1, else 1 − P(t)·e^−x².
///
/// Far from 0 it is 7.1.26 of Abramowitz and Stegun, whose error is 1.5e-7.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    // Taylor: 2/√π · Σ (−1)ⁿ x²ⁿ⁺¹ / (n!(2n + 1)), to n = 9.
    let p = -1.0 / 6_894_720.0;
    let p = p * z + 1.0 / 685_440.0;
    let p = p * z - 1.0 / 75_600.0;
    let p = p * z + 1.0 / 9_360.0;
    let p = p * z - 1.0 / 1_320.0;
    let p = p * z + 1.0 / 216.0;
    let p = p * z - 1.0 / 42.0;
    let p = p * z + 0.1;
    let p = p * z - 1.0 / 3.0;
    let p = p * z + 1.0;
    let near = std::f32::consts::FRAC_2_SQRT_PI * x * p;
    let t = 1.0 / (1.0 + 0.327_591_1 * a);
    let q = 1.061_405_4;
    let q = q * t - 1.453_152;
    let q = q * t + 1.421_413_7;
    let q = q * t - 0.284_496_74;
    let q = q * t + 0.254_829_6;
    let far = (1.0 - q * t * exp(-z)).copysign(x);
    let y = if a < 1.0 { near } else { far };
    if x.is_nan() { x } else { y }
}

/// Sums go in a fixed number of lanes, which vectorises and keeps errors small.
const LANES: usize = 16;

/// Σ f(x), in lanes.
#[inline(always)]
pub fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, x)| *lane += f(*x));
    lanes.iter().sum()
}

/// The largest element. NaN loses every comparison.
#[inline(always)]
pub fn largest(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *x);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(low: f32, high: f32) -> impl Iterator<Item = f32> {
        (0..=200_000).map(move |i| low + (high - low) * (i as f32 / 200_000.0))
    }

    fn ulps(got: f32, expected: f64) -> f64 {
        let unit =
            f64::from((expected as f32).abs().max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        (f64::from(got) - expected).abs() / unit
    }

    #[test]
    fn exp_error() {
        let worst =
            sweep(-87.0, 88.7).map(|x| ulps(exp(x), f64::from(x).exp())).fold(0.0, f64::max);
        assert!(worst < 2.0, "{worst} ulp");
        assert_eq!((exp(-1e9), exp(1e9), exp(f32::NEG_INFINITY)), (0.0, f32::INFINITY, 0.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn log_error() {
        let points = sweep(1e-3, 4.0).chain(sweep(1.0, 1e30)).chain(sweep(1.2e-38, 1e-30));
        let error = |x: f32| {
            let e = f64::from(x).ln();
            // Near 1 the result is tiny: absolute error counts there.
            ulps(log(x), e).min((f64::from(log(x)) - e).abs() / 1e-7)
        };
        let worst = points.map(error).fold(0.0, f64::max);
        assert!(worst < 2.0, "{worst} ulp");
        assert_eq!((log(0.0), log(f32::INFINITY)), (f32::NEG_INFINITY, f32::INFINITY));
        assert!(log(-1.0).is_nan() && log(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_error() {
        let worst =
            sweep(-20.0, 20.0).map(|x| ulps(tanh(x), f64::from(x).tanh())).fold(0.0, f64::max);
        assert!(worst < 4.0, "{worst} ulp");
        assert_eq!((tanh(1e9), tanh(-1e9)), (1.0, -1.0));
    }

    #[test]
    fn erf_error() {
        // erf by Simpson's rule on its integral, in float64.
        let exact = |x: f64| {
            let n = 2000;
            let h = x / f64::from(n);
            let f = |i: i32| (-(f64::from(i) * h).powi(2)).exp();
            let inner: f64 = (1..n).map(|i| f(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            std::f64::consts::FRAC_2_SQRT_PI * h / 3.0 * (f(0) + inner + f(n))
        };
        for i in -60..=60 {
            let x = i as f32 / 10.0;
            let error = (f64::from(erf(x)) - exact(f64::from(x))).abs();
            assert!(error < 2.5e-7, "erf({x}) is off by {error}");
        }
    }
}
