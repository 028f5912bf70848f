//! How far results may be from a reference.

/// Bound of the [`nmse`] of sums of `terms` f32 terms; 0 terms: exact.
///
/// Adding n terms in any order makes n roundings, each of at most u = ε/2
/// relative to the partial sum then reached, with signs as if drawn at random
/// (N. J. Higham, T. Mary, "A new approach to probabilistic rounding error
/// analysis", SIAM J. Sci. Comput. 2019). Terms t of random sign have partial
/// sums of about √i·t, so that the squared error is about Σᵢ u²·i·t² = u²n²t²/2
/// against a squared result of n·t²; for terms of one sign it is u²n³t²/3
/// against n²t². Either way the normalised mean square error is at most about
/// u²·n/2. Few outputs scatter around that, and so does the ratio of Σ|t| to
/// |Σt|: an error of 5.7 times as much is let pass, (2ε)²·n.
///
/// Errors of sums that feed sums add up as squares: the lengths of a chain add.
pub fn bound(terms: usize) -> f64 {
    functions(2.0) * terms as f64
}

/// Bound of the [`nmse`] of functions evaluated within `ulps` units in the
/// last place of the largest results.
pub fn functions(ulps: f64) -> f64 {
    (ulps * f64::from(f32::EPSILON)).powi(2)
}

/// Normalised mean square error Σ(x − r)² / Σr²; 0 where both are all zeros.
pub fn nmse<X: Copy + Into<f64>, R: Copy + Into<f64>>(got: &[X], reference: &[R]) -> f64 {
    assert_eq!(got.len(), reference.len(), "lengths differ");
    let square = |x: f64| x * x;
    let pairs = got.iter().zip(reference).map(|(x, r)| ((*x).into(), (*r).into()));
    let error: f64 = pairs.map(|(x, r): (f64, f64)| square(x - r)).sum();
    let size: f64 = reference.iter().map(|r| square((*r).into())).sum();
    if error == 0.0 { 0.0 } else { error / size }
}

/// Asserts that `got` has no NaN and is within `bound` of `reference`.
pub fn check<X: Copy + Into<f64>, R: Copy + Into<f64>>(
    what: &str,
    got: &[X],
    reference: &[R],
    bound: f64,
) {
    for (i, x) in got.iter().enumerate() {
        let x: f64 = (*x).into();
        assert!(!x.is_nan(), "{what}: element {i} is NaN or was not written");
    }
    let error = nmse(got, reference);
    if std::env::var_os("PLIMSOLL_SHOW_ERRORS").is_some() {
        eprintln!("{what}: {error:.1e} of {bound:.1e}");
    }
    assert!(error <= bound, "{what}: error {error:.2e}, bound {bound:.2e}");
}
