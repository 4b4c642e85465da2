"""SciPy and scikit-learn on tensors: what they compute by the Array API, in Tenon, equal to what they make of arrays.

The functions that work are the list below.  It runs in a process of its own, since SciPy reads SCIPY_ARRAY_API when it
is imported.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

# A and B are matrices, S a positive definite one, v and w positive vectors, y and z labels.
SCIPY = """
special.gammaln(v); special.erf(A); special.expit(A); special.logit(v/9); special.logsumexp(A,axis=1)
special.softmax(A,axis=1); special.log_softmax(A,axis=1); special.xlogy(v,w); special.entr(v); special.rel_entr(v,w)
special.i0(A); special.i0e(A); special.i1(A); special.i1e(A); special.ndtr(A); special.log_ndtr(A)
special.betainc(v,w,w/9); special.gammainc(v,w); special.gammaincc(v,w); special.stdtrit(v,w/9); special.ndtri(w/9)
special.chdtr(v,w); special.erfinv(w/9); stats.zscore(A); stats.gmean(v); stats.hmean(v); stats.pmean(v,2)
stats.skew(v); stats.kurtosis(v); stats.moment(v,2); stats.kstat(v); stats.kstatvar(v); stats.ttest_1samp(A,0.0)
stats.ttest_ind(A,B); stats.ttest_rel(A,B); stats.pearsonr(v,w); stats.chisquare(v,v); stats.power_divergence(v,v)
stats.sem(A); stats.variation(v); stats.circmean(v); stats.circvar(v); stats.circstd(v); stats.entropy(v)
stats.zmap(v,w); stats.bartlett(v,w); stats.skewtest(v); stats.kurtosistest(v); stats.normaltest(v)
stats.jarque_bera(v); stats.tmean(v); stats.tvar(v); stats.tstd(v); stats.tsem(v); stats.tmin(v); stats.tmax(v)
stats.combine_pvalues(v/9); stats.false_discovery_control(v/9); stats.mannwhitneyu(v,w); stats.gzscore(v)
stats.gstd(v); stats.boxcox_llf(2.0,v); stats.differential_entropy(v); stats.iqr(v); stats.rankdata(v)
stats.quantile(v,0.3); stats.trim_mean(v,0.1); stats.mode(y); stats.describe(v); stats.lmoment(v); fft.fft(A)
fft.ifft(A); fft.rfft(A); fft.irfft(A); fft.fft2(A); fft.fftn(A); fft.fftshift(A); fft.hfft(A); fft.dct(A)
linalg.det(S); signal.detrend(A); signal.convolve(v,w); signal.fftconvolve(v,w); signal.correlate(v,w)
signal.hilbert(v); signal.lfilter(v[:3],w[:3],v); signal.resample(v,6); signal.wiener(v)
ndimage.gaussian_filter(A,1.0); ndimage.uniform_filter(A); ndimage.sobel(A); ndimage.rotate(A,20); ndimage.zoom(A,2)
cluster.vq.vq(A,B); cluster.vq.whiten(A); cluster.hierarchy.linkage(A); cluster.vq.kmeans2(A,A[:3],minit='matrix')[0]
spatial.distance.pdist(A); spatial.transform.Rotation.from_rotvec(A[:,:3]).as_matrix(); integrate.trapezoid(A)
integrate.cumulative_trapezoid(A); integrate.cumulative_simpson(A); optimize.rosen(v)
"""
SCIKIT_LEARN = """
metrics.accuracy_score(y,z); metrics.zero_one_loss(y,z); metrics.f1_score(y,z); metrics.precision_score(y,z)
metrics.recall_score(y,z); metrics.fbeta_score(y,z,beta=0.5); metrics.jaccard_score(y,z)
metrics.confusion_matrix(y,z); metrics.balanced_accuracy_score(y,z); metrics.cohen_kappa_score(y,z)
metrics.hamming_loss(y,z); metrics.mean_squared_error(v,w); metrics.mean_absolute_error(v,w); metrics.r2_score(v,w)
metrics.mean_absolute_percentage_error(v,w); metrics.mean_squared_log_error(v,w); metrics.root_mean_squared_error(v,w)
metrics.median_absolute_error(v,w); metrics.max_error(v,w); metrics.explained_variance_score(v,w)
metrics.mean_gamma_deviance(v,w); metrics.mean_poisson_deviance(v,w); metrics.mean_tweedie_deviance(v,w)
metrics.d2_tweedie_score(v,w); metrics.d2_absolute_error_score(v,w); metrics.mean_pinball_loss(v,w)
metrics.log_loss(y,w/9); metrics.brier_score_loss(y,w/9); metrics.precision_recall_curve(y,w)
metrics.pairwise.cosine_similarity(A,B); metrics.pairwise.cosine_distances(A,B)
metrics.pairwise.euclidean_distances(A,B); metrics.pairwise.linear_kernel(A,B)
metrics.pairwise.polynomial_kernel(A,B); metrics.pairwise.rbf_kernel(A,B); metrics.pairwise.sigmoid_kernel(A,B)
metrics.pairwise.laplacian_kernel(A,B); metrics.pairwise.manhattan_distances(A,B)
metrics.pairwise.chi2_kernel(abs(A),abs(B)); metrics.pairwise.paired_euclidean_distances(A,B)
metrics.pairwise.paired_cosine_distances(A,B); metrics.pairwise.additive_chi2_kernel(abs(A),abs(B))
preprocessing.StandardScaler().fit_transform(A); preprocessing.MinMaxScaler().fit_transform(A)
preprocessing.MaxAbsScaler().fit_transform(A); preprocessing.Normalizer().fit_transform(A)
preprocessing.KernelCenterer().fit_transform(S); preprocessing.Binarizer().fit_transform(A)
preprocessing.PolynomialFeatures().fit_transform(A); preprocessing.LabelEncoder().fit_transform(y)
preprocessing.label_binarize(y,classes=[0,1]); decomposition.PCA(2,svd_solver='full').fit(A).explained_variance_
decomposition.PCA(2,svd_solver='covariance_eigh').fit(A).explained_variance_
linear_model.Ridge(solver='svd').fit(A,v).coef_; linear_model.RidgeCV().fit(A,v).coef_
linear_model.LinearRegression().fit(A,v).coef_; linear_model.RidgeClassifier(solver='svd').fit(A,y).predict(B)
linear_model.LogisticRegression(solver='lbfgs').fit(A,y).predict(B)
discriminant_analysis.LinearDiscriminantAnalysis().fit(A,y).predict(B); naive_bayes.GaussianNB().fit(A,y).predict(B)
metrics.multilabel_confusion_matrix(y,z); metrics.classification_report(y,z,output_dict=True)['accuracy']
metrics.calinski_harabasz_score(A,y); metrics.davies_bouldin_score(A,y); metrics.det_curve(y,w)
"""


def calls(text: str) -> list[str]:
    """The calls of a list."""
    return [call.strip() for call in text.replace("\n", "; ").split("; ") if call.strip()]


def leaves(found: Any) -> list[Any]:
    """The arrays and numbers of a result."""
    if isinstance(found, (tuple, list)):
        return [leaf for part in found for leaf in leaves(part)]
    return [found.statistic, found.pvalue] if hasattr(found, "statistic") else [found]


def compare(package: str) -> None:
    """Print every call of a list that does not give with tensors what it gives with arrays."""
    import numpy as np
    import scipy.cluster
    import scipy.fft
    import scipy.integrate
    import scipy.ndimage
    import scipy.optimize
    import scipy.signal
    import scipy.special
    import scipy.stats
    import sklearn
    import sklearn.calibration
    import sklearn.decomposition
    import sklearn.discriminant_analysis
    import sklearn.linear_model
    import sklearn.metrics
    import sklearn.naive_bayes
    import sklearn.preprocessing

    import tenon as tn
    warnings.simplefilter("ignore")
    sklearn.set_config(array_api_dispatch=True)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((12, 4)), rng.standard_normal((12, 4))
    given = {"A": a, "B": b, "v": np.abs(a[:, 0]) + 0.1, "w": np.abs(b[:, 0]) + 0.1, "S": a.T @ a + np.eye(4),
             "y": (a[:, 0] > 0).astype(np.int64), "z": (b[:, 0] > 0).astype(np.int64)}
    tensors = {name: tn.asarray(array) for name, array in given.items()}
    modules = vars(scipy if package == "scipy" else sklearn)
    for call in calls(SCIPY if package == "scipy" else SCIKIT_LEARN):
        try:
            wanted, found = leaves(eval(call, modules | given)), leaves(eval(call, modules | tensors))
            for x, array in zip(found, wanted, strict=True):
                assert isinstance(x, (tn.Tensor, float, int)), type(x)
                np.testing.assert_allclose(np.asarray(x, np.asarray(array).dtype), array, rtol=1e-6, atol=1e-9)
        except Exception as error:
            print(f"{call}: {type(error).__name__}: {str(error)[:200]}")


@pytest.mark.parametrize("package", ["scipy", "sklearn"])
def test_the_list_works(package: str) -> None:
    pytest.importorskip(package)
    root = Path(__file__).parent.parent.parent
    code = f"import runpy; runpy.run_path({__file__!r})['compare']({package!r})"
    run = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                         env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(root)})
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout == ""
